"""Copies inputs with a scheme (`s3a://`, `hdfs://`, `file://`) to this machine.

Spark's file systems read such paths, with their own settings and credentials; the pyarrow readers of an access record read
local files. An access record is small, about 1 MB per million events, so a copy is cheap.
"""

from __future__ import annotations

import re
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)

LocalOrRemote = Path | str
"""A path of this machine, or the text of one with a scheme. `Path` would collapse the two slashes after a scheme."""


class CannotFetch(Exception):
    """An input cannot be copied; the message is one sentence."""


class CannotWrite(Exception):
    """A folder cannot take output; the message is one sentence."""


def place(text: str) -> LocalOrRemote:
    """Returns the place that a word of the command line names, a relative path as an absolute one."""
    # Executors have working directories of their own, where a relative path names something else.
    return text if _SCHEME.match(text) else Path(text).absolute()


def local_folder(text: str) -> Path:
    """Returns the folder for output that is written without Spark. ArgumentTypeError for a path with a scheme."""
    where = place(text)
    if isinstance(where, str):
        raise ArgumentTypeError(f"{text!r} is no folder of this machine, where the report goes")
    return where


def check_output(where: LocalOrRemote, option: str = "--out") -> None:
    """Raises CannotWrite unless files can be written into a folder that exists or can be made.

    Called before Spark starts, so that a job does not fail at its end. Leaves no file. A place with a scheme is left
    to Spark, which alone can reach it.
    """
    if isinstance(where, str):
        return
    there = where.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise CannotWrite(f"{option} {where} cannot be written: {there} is no folder; name another")
    try:
        # Permissions alone do not tell: /proc and full or read-only file systems refuse a superuser's folder too.
        with tempfile.TemporaryDirectory(prefix=".magnetar-", dir=there):
            pass
    except PermissionError:
        raise CannotWrite(
            f"{option} {where} cannot be written: {there} may not be changed by this user; name another"
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise CannotWrite(f"{option} {where} cannot be written: {there}: {reason}; name another") from None


def refuse_inside(out: Path, inputs: Sequence[LocalOrRemote]) -> None:
    """Raises CannotWrite for a folder of output inside an input, whose next reader would find foreign files."""
    for one in inputs:
        if isinstance(one, Path) and out.resolve().is_relative_to(one.resolve()):
            raise CannotWrite(f"--out {out} is inside {one}, which the job reads: name a folder beside it")


def name_of(where: LocalOrRemote) -> str:
    """Returns the last part of a path."""
    return where.name if isinstance(where, Path) else where.rstrip("/").rpartition("/")[2]


def refuse_other_machines(where: str, master: str) -> None:
    """Raises CannotFetch for a cluster, whose tasks would not find the copy."""
    if not master.startswith("local"):
        raise CannotFetch(
            f"{where} would be copied to this machine, where tasks of {master} do not find it: mount it and give a "
            "path that all machines have, or use --master local[*]"
        )


def fetch(spark: SparkSession, where: str, folder: Path) -> Path:
    """Copies a file, or a folder and everything below it, into `folder`; returns the path of the copy. CannotFetch."""
    from py4j.protocol import Py4JJavaError

    target = folder / name_of(where)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs
    try:
        source = hadoop.Path(where)
        files = source.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if not files.exists(source):
            raise CannotFetch(f"there is no {where}")
        # Neither remove the source nor write checksum files beside the copies.
        files.copyToLocalFile(False, source, hadoop.Path(target.as_uri()), True)
    except Py4JJavaError as error:
        raise CannotFetch(f"{where} cannot be read: {_reason(error.java_exception.getMessage())}") from None
    return target


def _reason(message: str | None) -> str:
    first = (message or "no reason is given").splitlines()[0]
    if "No FileSystem for scheme" in first or "ClassNotFound" in first or "not found" in first:
        first += "; Spark needs the package that has this file system, see S3 in docs/how-to/spark_cluster.md"
    return first
