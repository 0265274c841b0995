"""Starts a Spark session: finds or provides Java, listens on loopback, and starts quickly.

Every job, the tests and the bench start Spark here. Executors of a cluster are sent this project's modules
(`code_archive`); with `spark-submit` a cluster brings its own session.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from pathlib import Path
from threading import Event, Thread

from pyspark.sql import SparkSession

from pipeline.code_archive import write_code_archive
from pipeline.java import Java, find_java
from pipeline.spark_master import check_master, in_one_process, on_this_machine
from pipeline.task_progress import EVERY_S

_ROOT = Path(__file__).resolve().parent.parent
"""The folder that Spark's Python workers import this package from."""
_LOGGING = Path(__file__).with_name("log4j2.properties")

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
_ON_CLUSTERS = ("spark.sql.execution", "spark.sql.session", "spark.python.")
_CLUSTER_SETTINGS = {name: text for name, text in LOCAL_SETTINGS.items() if name.startswith(_ON_CLUSTERS)}
"""Those that hold on a cluster as well."""


def cache_folder() -> Path:
    """Returns the folder for a wrapper of Java and archives of loaded classes."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "magnetar"


class _WaitTold:
    """Says every few seconds what a start waits for, until `with` ends."""

    def __init__(self, say: Callable[[str], None], every_s: float, waits_for: str) -> None:
        self.waits_for = waits_for
        """A part of the start that may take long."""
        self._say = say
        self._every_s = every_s
        self._ended = Event()
        self._thread = Thread(target=self._tell, daemon=True)

    def __enter__(self) -> _WaitTold:
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ended.set()
        self._thread.join()

    def _tell(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(self._every_s):
            self._say(f"  waiting for {self.waits_for}: {time.monotonic() - began:.0f} s so far")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    quick_start: bool = False,
    cache: Path | None = None,
    say: Callable[[str], None] = _to_stderr,
    every_s: float = EVERY_S,
) -> SparkSession:
    """Starts a session. A start that takes long calls `say` every `every_s` seconds with what it waits for.

    `quick_start` makes Java compile less, which suits tests and small inputs and slows large ones. The first session on a
    machine stores the classes that it loads; later ones start about twice as fast. NoJava, NoMaster.

    Executors that are processes of their own receive this project's modules, and need the packages that these import
    (docs/how-to/spark_cluster.md).
    """
    with _WaitTold(say, every_s, f"an answer of the master {master}") as told:
        return _start(
            told, name, master, settings or {}, quick_start, cache_folder() if cache is None else cache
        )


def _start(
    told: _WaitTold, name: str, master: str, settings: Mapping[str, str], quick_start: bool, folder: Path
) -> SparkSession:
    check_master(master)
    told.waits_for = "Java to be found"
    java = find_java(folder)
    _keep_bytecode(folder)
    # PySpark imports this, and pandas with it, at its first call into Java; meanwhile Java can start.
    Thread(target=import_module, args=("pyspark.testing.utils",), daemon=True).start()
    os.environ["JAVA_HOME"] = str(java.home)
    if on_this_machine(master):
        # Executors of other machines could not call back to the loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_workers_import(_ROOT)
    wanted = dict(LOCAL_SETTINGS if on_this_machine(master) else _CLUSTER_SETTINGS)
    wanted["spark.driver.extraJavaOptions"] = " ".join(_java_options(java, folder, quick_start))
    wanted.update(settings)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    told.waits_for = f"Java to start, and Spark in it with the master {master}"
    session: SparkSession = builder.getOrCreate()
    if not in_one_process(master):
        _send_code(session)
    # Errors are raised with Python's trace. Spark would also print Java's, once per attempt.
    session.sparkContext.setLogLevel("OFF")
    return session


def start_for_command(
    name: str, *, master: str, settings: Mapping[str, str] | None = None, quick_start: bool = False
) -> SparkSession:
    """Starts the session of a command, which Ctrl-C ends with KeyboardInterrupt and without a stack trace.

    A second Ctrl-C kills the process. NoJava, NoMaster.
    """
    early: list[int] = []

    def note(number: int, frame: object) -> None:
        early.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # Java prints a stack trace when its start is broken off, so an early Ctrl-C waits for the end of the start.
    signal.signal(signal.SIGINT, note)
    # In another thread PySpark does not install its own handler. That one calls into Java, while the main thread is inside
    # such a call already, and both fail with a stack trace each.
    with ThreadPoolExecutor(1) as starter:
        started = starter.submit(
            start_session, name, master=master, settings=settings, quick_start=quick_start
        )
        session = started.result()
    signal.signal(signal.SIGINT, _interrupt)
    if early:
        session.stop()
        raise KeyboardInterrupt
    return session


def _interrupt(number: int, frame: object) -> None:
    # Py4J logs the call into Java that this breaks off, with a stack trace.
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _send_code(session: SparkSession) -> None:
    """Sends this project's modules to all executors of the session."""
    folder = tempfile.TemporaryDirectory(prefix="magnetar-code-")
    # The driver serves the file itself, also to executors that start late, so it must last as long as the session.
    atexit.register(folder.cleanup)
    session.sparkContext.addPyFile(str(write_code_archive(Path(folder.name))))


def _keep_bytecode(folder: Path) -> None:
    """Keeps bytecode in `folder` where Python is told to write none beside its sources.

    Spark starts Python many times over, and gives some of these processes ten seconds to call back, which cannot be
    set. Those that have to compile PySpark and pandas first take longer on a busy machine: "Python worker failed to
    connect back".
    """
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and not sys.pycache_prefix:
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        # Empty is the same as not set.
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""


def _let_workers_import(folder: Path) -> None:
    """Adds a folder to `PYTHONPATH`, which Spark's Python workers inherit."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *paths])


def _java_options(java: Java, folder: Path, quick_start: bool) -> list[str]:
    options = ["-XX:+UseParallelGC", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    # Before the session can set its level, Spark logs five lines, and an error of its start with Java's stack trace.
    options.append(f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    if quick_start:
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options[1:]]
    return options + _class_archive(java, folder, quick_start)


def _class_archive(java: Java, folder: Path, quick_start: bool) -> list[str]:
    """Returns the option that reads the archive of loaded classes, or writes one."""
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
