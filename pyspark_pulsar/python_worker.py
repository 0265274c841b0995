"""Prepares the Python process in which Spark executes tasks."""

from __future__ import annotations

import gc

_frozen = False


def freeze_imports() -> None:
    """Exempts imported modules from garbage collection, once per process.

    Spark's Python worker collects garbage after every task and reuses the process for the next one. The objects of
    numpy, pyarrow and pyspark never become garbage; without the freeze each of these collections visits all of them.
    """
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
