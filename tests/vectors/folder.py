"""The folder of the golden files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

_REPOSITORY: Final = Path(__file__).resolve().parents[2]


def find_vectors_folder() -> Path | None:
    """The folder that `MAGNETAR_VECTORS` names, else the first known place that exists."""
    return next((place for place in _places() if place.is_dir()), None)


def vectors_folder() -> Path:
    """The same, for use inside a test: skips it where there is none."""
    folder = find_vectors_folder()
    if folder is None:
        pytest.skip(f"no golden files in {', '.join(map(str, _places()))}; set MAGNETAR_VECTORS")
    return folder


def _places() -> list[Path]:
    named = os.environ.get("MAGNETAR_VECTORS")
    if named:
        return [Path(named)]
    return [_REPOSITORY / "tests/vectors/data", _REPOSITORY.parent / "shared/vectors"]
