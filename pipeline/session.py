"""Starts a Spark session.

With Java found or provided, on loopback, and quickly.

Every job, the tests and the bench start Spark here. With `spark-submit` a cluster brings its own session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from threading import Thread

from pyspark.sql import SparkSession

from pipeline.java import Java, find_java

_ROOT = Path(__file__).resolve().parent.parent
"""The folder that Spark's Python workers import this package from."""

LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long a Python worker's answer may take; the default of 15 s is short for a machine that does much else.
    "spark.python.authenticate.socketTimeout": "120s",
    # The default forks a process for every file of a checkpoint; a local file system needs none of that.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for a master on this machine; `settings` of `start_session` override them."""


def cache_folder() -> Path:
    """Return the folder for a wrapper of Java and archives of loaded classes."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "magnetar"


def start_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    quick_start: bool = False,
    cache: Path | None = None,
) -> SparkSession:
    """Start a session.

    `quick_start` makes Java compile less, which suits tests and small inputs and slows large ones. The first session on a
    machine stores the classes that it loads; later ones start about twice as fast. NoJava.
    """
    folder = cache_folder() if cache is None else cache
    java = find_java(folder)
    _keep_bytecode(folder)
    # PySpark imports this, and pandas with it, at its first call into Java; meanwhile Java can start.
    Thread(target=import_module, args=("pyspark.testing.utils",), daemon=True).start()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_workers_import(_ROOT)
    wanted = dict(LOCAL_SETTINGS if master.startswith("local") else {})
    wanted["spark.driver.extraJavaOptions"] = " ".join(_java_options(java, folder, quick_start))
    wanted.update(settings or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    # Errors are raised with Python's trace. Spark would also print Java's, once per attempt.
    session.sparkContext.setLogLevel("OFF")
    return session


def _keep_bytecode(folder: Path) -> None:
    """Keep bytecode in `folder` where Python is told to write none beside its sources.

    Spark starts Python many times over, and gives some of these processes ten seconds to call back, which cannot be
    set. Those that have to compile PySpark and pandas first take longer on a busy machine: "Python worker failed to
    connect back".
    """
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and not sys.pycache_prefix:
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        # Empty is the same as not set.
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""


def _let_workers_import(folder: Path) -> None:
    """Add a folder to `PYTHONPATH`, which Spark's Python workers inherit."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *paths])


def _java_options(java: Java, folder: Path, quick_start: bool) -> list[str]:
    options = ["-XX:+UseParallelGC", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if quick_start:
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options[1:]]
    return options + _class_archive(java, folder, quick_start)


def _class_archive(java: Java, folder: Path, quick_start: bool) -> list[str]:
    """Return the option that reads the archive of loaded classes, or writes one."""
    kind = "quick" if quick_start else "full"
    archive = folder / f"spark-{metadata.version('pyspark')}-{java.name}-{kind}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Java writes an archive when it ends, under the id of the Python process that started it. While that process
        # lives the file may be half written.
        for finished in folder.glob(f"{archive.name}.*"):
            if not Path(f"/proc/{finished.suffix[1:]}").exists():
                finished.replace(archive)
    except OSError:
        return []
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}"]
    # A name of its own for each process: two sessions that end together would write over each other.
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]
