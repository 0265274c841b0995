"""A standalone Spark cluster on the loopback: a master and workers, each a Java process, from the package pyspark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from tests.support.log_file import lines_in, tail_of

STOP_S: Final = 60.0
_POLL_S: Final = 0.1
_ADDRESS: Final = re.compile(r"spark://[\w.:-]+")


def spark_home() -> Path:
    """The folder of the package, which is a Spark distribution."""
    spec = util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def bare_python() -> tuple[str, dict[str, str]]:
    """A Python for executors that has all packages but this project: its path, and settings of Spark for it.

    It is the interpreter below the virtual environment, with the environment's packages as a plain path. Python does not
    read the `.pth` files of such a path, so a checkout that is installed as editable is not found through it.
    """
    return str(Path(sys.executable).resolve()), {"spark.executorEnv.PYTHONPATH": str(spark_home().parent)}


def write_defaults(folder: Path, settings: Mapping[str, str]) -> Path:
    """Writes `spark-defaults.conf` and returns its folder, for SPARK_CONF_DIR."""
    folder.mkdir(parents=True)
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text(lines)
    return folder


def run_driver(
    words: list[str],
    folder: Path,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    limit_s: float,
) -> str:
    """Runs this Python with `words` as a driver in `folder`; returns its output.

    It gets `settings` by `spark-defaults.conf` alone.
    """
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "SPARK_CONF_DIR": str(write_defaults(folder / "conf", settings)), **environment},
        cwd=folder,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class _JavaProcess(NamedTuple):
    """A process of the cluster, and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, text: str) -> str:
        """Returns the first line of the log with this text. AssertionError when the process ends without it.

        There is no limit of time: with 30 programs at work on two cores a worker needed more than 120 s to register.
        """
        while not (found := [line for line in lines_in(self.log) if text in line]):
            assert self.process.poll() is None, f"{self.log.name} ends without {text!r}:\n{tail_of(self.log)}"
            time.sleep(_POLL_S)
        return found[0]


class StandaloneCluster:
    """`with StandaloneCluster(folder) as cluster:` starts it; `cluster.url` is for `--master`."""

    def __init__(self, folder: Path, java_home: Path, workers: int = 2) -> None:
        self._folder = folder
        self._java_home = java_home
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        """`spark://127.0.0.1:port`, from the start on."""

    def __enter__(self) -> StandaloneCluster:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        master = self._run(
            "master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        self.url = _ADDRESS.findall(master.wait_for("Starting Spark master at"))[0]
        workers = [
            self._run(
                f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
                "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url,
            )
            for number in range(self._workers)
        ]  # fmt: skip
        for worker in workers:
            worker.wait_for("Successfully registered with master")

    def _run(self, name: str, java_class: str, *words: str) -> _JavaProcess:
        log = self._folder / f"{name}.log"
        # Java needs no other variables. Executors inherit them, and must not find the checkout by a PYTHONPATH.
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        environment = {
            **kept,
            "JAVA_HOME": str(self._java_home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(self._folder),
        }
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{java_class}", *words]
        with log.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        self._processes.append(process)
        return _JavaProcess(process, log)

    def _stop(self) -> None:
        # Workers first: they end their executors.
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
