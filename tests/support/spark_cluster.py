"""A standalone Spark cluster on the loopback: a master and workers, each a Java process, from the package pyspark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.log_file import wait_for_lines

START_S: Final = 120.0
STOP_S: Final = 60.0
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
        log = self._run("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        line = wait_for_lines(log, "Starting Spark master at", timeout_s=START_S)[0]
        self.url = _ADDRESS.findall(line)[0]
        for number in range(self._workers):
            log = self._run(
                f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
                "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url,
            )  # fmt: skip
            wait_for_lines(log, "Successfully registered with master", timeout_s=START_S)

    def _run(self, name: str, java_class: str, *words: str) -> Path:
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
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
        return log

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
