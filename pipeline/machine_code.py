"""Compiles functions over numpy arrays to machine code, with numba.

numba compiles a function at its first call, keeps the result on disk and runs it without the interpreter's lock, so
that tasks of one process run side by side. `pipeline.replays` and `pipeline.simulators.stack_distances` use it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar, cast
from zipimport import zipimporter

import numba

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compiles one version of the function for each combination of argument types."""
    return _compiled(function)


def compiled_without_counts(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compiles a function that neither creates arrays nor keeps a reference to one.

    numba then counts no references to its arguments. A function that takes a tuple of arrays and is called for each
    entry otherwise spends most of its time on that count (eight times as long for the replay of a record).
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[_Arguments, _Result], **options: bool) -> Callable[_Arguments, _Result]:
    config = numba.config
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    folder = Path(before or _cache_folder()) / _digest_of_sources()
    # numba reads the folder of its cache from this setting only, at the moment a function is decorated.
    config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    try:
        # Without the interpreter's lock, the tasks of one Spark executor run side by side.
        made = numba.njit(cache=True, nogil=True, **options)(function)  # type: ignore[call-overload]
    except RuntimeError:
        # numba found no folder that it may write to: each process then compiles for itself.
        made = numba.njit(nogil=True, **options)(function)  # type: ignore[call-overload]
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return cast(Callable[_Arguments, _Result], made)


def _archive() -> Path | None:
    """Returns the archive that this module was imported from; None for a module in a folder."""
    loader = __spec__.loader
    return Path(loader.archive) if isinstance(loader, zipimporter) else None


def _cache_folder() -> Path:
    # Nothing can be written beside a module of an archive, and each executor has a copy of it that vanishes.
    if _archive() is not None:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar" / "machine-code"
    return Path(__file__).parent / "__pycache__"


@cache
def _digest_of_sources() -> str:
    """Returns the digest of all sources that compiled code may come from; the cache's folder is named after it.

    numba compares a function's own file only. A change of a function or constant that it imports from another file
    would otherwise leave the old machine code in use.
    """
    archive = _archive()
    if archive is not None:
        return hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    rooms = Path(__file__).parent
    sources = sorted(path for room in ("simulators", "replays") for path in (rooms / room).rglob("*.py"))
    # The hash of entries, which machine code shares with the recorder.
    sources.append(rooms.parent / "broker" / "recorder" / "sampling.py")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
