"""Whether kernels can be used: numba is an extra, and without it the same answers come slower."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache


@cache
def numba_is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def say_that_it_is_slow() -> None:
    """Once per process."""
    warnings.warn(
        "numba is not installed: traces are replayed in pure Python, ten to a hundred times slower; "
        "pip install 'magnetar[pipeline]' brings it",
        RuntimeWarning,
        stacklevel=3,
    )
