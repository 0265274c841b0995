"""How kernels become machine code: by numba, at the first call, kept on disk and run without the interpreter's lock."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba
from numba import types

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

IDS = types.Array(types.int32, 1, "C", readonly=True)
SIZES = types.Array(types.int64, 1, "A", readonly=True)
"""Any stride, so that one and the same size for all objects takes no memory."""
CAPACITY = types.int64


def compiled(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """For what kernels call: a version for each kind of arguments that occurs."""
    return _compiled(function)


def compiled_without_counts(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """For what makes no arrays and keeps none: nobody counts who refers to those that it is given.

    A function that is called for each entry and takes a tuple of arrays otherwise spends most of its time in counting.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[Arguments, Answer], **options: bool) -> Callable[Arguments, Answer]:
    config = numba.config
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    folder = Path(before or Path(__file__).parent / "__pycache__") / _digest_of_sources()
    config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)  # type: ignore[call-overload]
    except RuntimeError:  # numba found no folder that it may write to; then each process compiles anew
        made = numba.njit(nogil=True, **options)(function)  # type: ignore[call-overload]
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return cast(Callable[Arguments, Answer], made)


def kernel(
    *argument_types: types.Type,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """For what Python calls: one version, made for these types at the first call; others are converted or refused."""

    def decorate(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        dispatcher = compiled(function)

        @wraps(function)
        def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
            if not dispatcher.signatures:  # type: ignore[attr-defined]
                dispatcher.compile(argument_types)  # type: ignore[attr-defined]
                dispatcher.disable_compile()  # type: ignore[attr-defined]
            return dispatcher(*arguments, **named)

        return run

    return decorate


@cache
def _digest_of_sources() -> str:
    """Names the folder of the machine code. numba looks at a kernel's own file only, not at what it imports."""
    rooms = Path(__file__).parents[2]
    sources = sorted(path for room in ("simulators", "replays") for path in (rooms / room).rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
