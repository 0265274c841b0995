"""`python -m tests.storages`: every test that has a broker process, once per storage; ends with one line for each.

    embedded   the bookie inside the broker's process
    bookie     a bookie of ours as a process of its own, over TCP
    bookies    three of them: each ledger on all (E = 3), each entry on two (Qw = Qa = 2)
    cluster    a bookie and a shared store; with MAGNETAR_CLUSTER=3 each broker is three
    apache     one bookie of Apache BookKeeper, metadata in ZooKeeper

Maven fetches Apache's bookie, or `MAGNETAR_BOOKKEEPER_HOME` names an unpacked distribution of Apache BookKeeper (the
folder that has `lib`). `MAGNETAR_ZOOKEEPER` names a ZooKeeper that runs (host:port); without it one is started. A storage
is skipped with the reason where something is missing. All processes listen on loopback and stop at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storages.places import CLASSES, PLACES, STORAGE, ZOOKEEPER
from tests.support.apache_bookie import classes_in, java
from tests.support.java import ZooKeeper, class_path

HOME = "MAGNETAR_BOOKKEEPER_HOME"
POM = Path(__file__).parents[1] / "bookie_stub/java/pom.xml"

WITH_A_BROKER = [
    *("tests/interop", "tests/magnetar", "tests/fuzz", "tests/exactly_once"),
    *("tests/pyspark_pulsar", "tests/pipeline/live", "tests/pipeline/audits"),
    *("tests/test_wire_vectors.py", "tests/test_rest_vectors.py"),
]


class Missing(Exception):
    """A storage needs a program or a package that the machine does not have."""


@contextmanager
def environment_of(name: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """Yields the environment variables of the tests for a storage. Missing when it cannot run here."""
    if name == "embedded":
        yield {}
    elif name == "apache":
        classes = _classes(folder)
        with _zookeeper(classes, folder) as address:
            yield {STORAGE: name, ZOOKEEPER: address, CLASSES: classes}
    else:
        yield {STORAGE: name}


def _classes(folder: Path) -> str:
    """Returns the class path of Apache's bookie; raises Missing where it cannot be had."""
    if java() is None:
        raise Missing("java is not installed, and JAVA_HOME names none")
    home = os.environ.get(HOME)
    if home is None:
        try:
            return class_path(POM, folder)
        except pytest.skip.Exception as skipped:
            raise Missing(str(skipped)) from None
    if not list((Path(home) / "lib").glob("*bookkeeper-server*.jar")):
        raise Missing(f"{HOME}={home} has no lib with bookkeeper-server")
    return classes_in(Path(home))


@contextmanager
def _zookeeper(classes: str, folder: Path) -> Iterator[str]:
    named = os.environ.get(ZOOKEEPER)
    if named is not None:
        yield named
        return
    zookeeper = ZooKeeper(classes, folder)
    zookeeper.start()
    try:
        yield zookeeper.address
    finally:
        zookeeper.stop()


def run(name: str, words: list[str]) -> tuple[bool, str]:
    """Runs the tests on one storage. Returns True when all passed, and the line to end with."""
    with tempfile.TemporaryDirectory(prefix="magnetar-storage-") as folder:
        try:
            with environment_of(name, Path(folder)) as environment:
                line, code = _pytest(words, environment)
        except Missing as missing:
            return True, f"skipped: {missing}"
    return code == 0, line


def _pytest(words: list[str], environment: Mapping[str, str]) -> tuple[str, int]:
    """Runs pytest and shows its output. Returns its last line and exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-ra",
        "-n",
        "2",
        "-m",
        "not peer",
        "--dist",
        "loadfile",
        *words,
    ]
    line = "no output"
    environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for printed in running.stdout:
            print(printed, end="", flush=True)
            line = printed.strip("= \n") or line
    return line, running.returncode


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.storages", allow_abbrev=False)
    storages = ("embedded", *PLACES)
    parser.add_argument("--storage", action="append", choices=storages, help="only this one; may be repeated")
    parser.add_argument("words", nargs="*", help="for pytest (default: all tests with a broker process)")
    arguments = parser.parse_args()
    outcomes = {}
    for name in arguments.storage or storages:
        print(f"--- {name}", flush=True)
        outcomes[name] = run(name, arguments.words or WITH_A_BROKER)
    for name, (_, line) in outcomes.items():
        print(f"{name:<10}{line}")
    return 0 if all(well for well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
