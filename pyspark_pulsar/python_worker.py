"""Prepares the Python processes in which Spark plans queries and executes tasks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_pulsar.errors import PulsarSourceError

_frozen = False


@contextmanager
def one_sentence() -> Iterator[None]:
    """Makes Spark report an error of this package by its sentence alone, without the stack of the Python worker.

    Used around each call of Spark, as a decorator or, for generators, in the body.
    """
    try:
        yield
    except PulsarSourceError:
        # Spark reads the variable when it formats the error that ends this worker. Set it no earlier: the stack of any
        # other error, also of a user's function in the same process, is needed to find its cause.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


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
