"""`python -m tests.storages`: runs the interop tests once per storage and ends with one line for each.

    embedded   the bookie inside the broker's process
    bookie     a bookie of ours as a process of its own, over TCP
    bookies    three of them: each ledger on all (E = 3), each entry on two (Qw = Qa = 2)
    apache     one bookie of Apache BookKeeper, metadata in ZooKeeper

`MAGNETAR_BOOKKEEPER_HOME` names an unpacked distribution of Apache BookKeeper (the folder that has `lib`), and
`MAGNETAR_ZOOKEEPER` a ZooKeeper that runs (host:port); without it the distribution's own is started. What is missing
is said, and its storage skipped. Everything listens on loopback and stops with the run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.bookie_stub.test_process import Process
from tests.support.apache_bookie import ApacheBookie, java
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import SETTINGS_FOR_ALL

HOME: Final = "MAGNETAR_BOOKKEEPER_HOME"
ZOOKEEPER: Final = "MAGNETAR_ZOOKEEPER"
CORE = [
    f"tests/interop/test_{name}.py"
    for name in ("produce_consume", "restart", "subscriptions", "positions", "acknowledgements", "producers")
]


class Missing(Exception):
    """What this storage needs and the machine does not have."""


@contextmanager
def embedded(folder: Path) -> Iterator[Mapping[str, str]]:
    yield {}


@contextmanager
def bookie(folder: Path) -> Iterator[Mapping[str, str]]:
    """The brokers of all tests share the bookie, and so the metadata store that gives out ledger ids."""
    process = Process(folder / "bookie")
    process.start()
    try:
        yield {
            "bookieAddress": process.addresses["bookie"],
            "metadataStoreUrl": f"file:{folder / 'metadata.sqlite'}",
        }
    finally:
        process.end(signal.SIGTERM)


@contextmanager
def bookies(folder: Path) -> Iterator[Mapping[str, str]]:
    with BookieProcesses(folder / "bookies", 3) as processes:
        yield {
            **ensemble_settings(processes.addresses),
            "metadataStoreUrl": f"file:{folder / 'metadata.sqlite'}",
        }


@contextmanager
def apache(folder: Path) -> Iterator[Mapping[str, str]]:
    home = os.environ.get(HOME)
    if home is None:
        raise Missing(f"{HOME} names no distribution of Apache BookKeeper")
    if not list((Path(home) / "lib").glob("*bookkeeper-server*.jar")):
        raise Missing(f"{HOME}={home} has no lib with bookkeeper-server")
    if java() is None:
        raise Missing("java is not installed, and JAVA_HOME names none")
    with _zookeeper(Path(home), folder) as address:
        process = ApacheBookie(Path(home), folder, address)
        process.start()
        try:
            yield {"bookieAddress": process.address, "metadataStoreUrl": f"zk:{address}"}
        finally:
            process.stop()


@contextmanager
def _zookeeper(home: Path, folder: Path) -> Iterator[str]:
    """One that runs gets a node of its own for this run."""
    named = os.environ.get(ZOOKEEPER)
    if named is not None:
        root = f"/magnetar-test-{uuid.uuid4().hex[:8]}"
        client = KazooClient(hosts=named)
        client.start()
        client.ensure_path(root)
        yield f"{named}{root}"
        client.delete(root, recursive=True)
        client.stop()
        client.close()
        return
    (folder / "zookeeper").mkdir()
    zookeeper = ZooKeeper(str(home / "lib" / "*"), folder / "zookeeper")
    zookeeper.start()
    try:
        yield zookeeper.address
    finally:
        zookeeper.stop()


STORAGES: dict[str, Callable[[Path], AbstractContextManager[Mapping[str, str]]]] = {
    "embedded": embedded,
    "bookie": bookie,
    "bookies": bookies,
    "apache": apache,
}


def run(name: str, words: list[str]) -> tuple[bool, str]:
    """Whether all is well, and the line to end with."""
    with tempfile.TemporaryDirectory(prefix="magnetar-storage-") as folder:
        try:
            with STORAGES[name](Path(folder)) as settings:
                environment = {**os.environ, SETTINGS_FOR_ALL: json.dumps(settings)}
                command = [sys.executable, "-m", "pytest", "-q", *words]
                ended = subprocess.run(
                    command, env=environment, stdout=subprocess.PIPE, text=True, check=False
                )
        except Missing as missing:
            return True, f"skipped: {missing}"
    print(ended.stdout, flush=True)
    lines = ended.stdout.strip().splitlines()
    return ended.returncode == 0, lines[-1].strip("= ") if lines else "no output"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.storages", allow_abbrev=False)
    parser.add_argument("--storage", action="append", choices=STORAGES, help="only this one; may be repeated")
    parser.add_argument("words", nargs="*", help="for pytest (default: the core interop tests)")
    arguments = parser.parse_args()
    outcomes = {}
    for name in arguments.storage or STORAGES:
        print(f"--- {name}", flush=True)
        outcomes[name] = run(name, arguments.words or CORE)
    for name, (_, line) in outcomes.items():
        print(f"{name:<10}{line}")
    return 0 if all(well for well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
