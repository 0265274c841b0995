"""The storages in which brokers under test keep entries and metadata: one for each data folder.

A broker that starts again in its folder, or a second one there, finds the storage of the first; another folder gets
another, so that a test begins as empty as on the embedded bookie. What was started here ends with the test module that
asked for it. A test that names a storage itself keeps the one that it names.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kazoo.client import KazooClient

from tests.support.apache_bookie import ApacheBookie
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.support.ports import free_port

STORAGE: Final = "MAGNETAR_TEST_STORAGE"
"""Names the storage of every broker of the run. Not set: each has a bookie inside its process."""
CLUSTER: Final = "MAGNETAR_CLUSTER"
"""Number of brokers that each test's broker stands for: they share the storage `cluster`, and the first one is asked."""
CLASSES: Final = "MAGNETAR_BOOKKEEPER_CLASSES"
"""The class path of Apache BookKeeper's server, for the storage `apache`."""
ZOOKEEPER: Final = "MAGNETAR_ZOOKEEPER"
_FORMATTED: Final = "/magnetar-formatted"
CHOICES: Final = frozenset({"bookieAddress", "metadataStoreUrl"})

Place = Callable[[Path], AbstractContextManager[Mapping[str, str]]]


def settings_for(folder: Path, own: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the settings that name the storage of a broker with its data in `folder`.

    Empty for its own bookie, and when the settings `own` choose a storage themselves.
    """
    name = os.environ.get(STORAGE, "cluster" if CLUSTER in os.environ else None)
    if name is None or CHOICES & own.keys():
        return {}
    key = folder.resolve()
    if key not in _running:
        below = folder / "storage"
        below.mkdir(exist_ok=True)
        _running[key] = _open.enter_context(PLACES[name](below))
    if CLUSTER in os.environ:
        return {**_running[key], **ports_for(folder, own)}
    return _running[key]


def ports_for(folder: Path, own: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the ports of a broker of a cluster with its data in `folder`, those that `own` leaves empty excepted.

    They stay over restarts, and so does the broker's name, by which a killed broker takes its own bundles again.
    """
    used = [name for name, usual in _PORTS.items() if own.get(name, usual)]
    return {name: _port(folder.resolve(), name) for name in used}


@functools.cache
def _port(_folder: Path, _name: str) -> str:
    return str(free_port())


def close() -> None:
    """Ends every storage that runs."""
    _open.close()
    _running.clear()


_PORTS: Final = {
    "brokerServicePort": "0",
    "webServicePort": "0",
    "brokerServicePortTls": "",
    "webServicePortTls": "",
}
"""The broker's ports, as they are in tests that do not set them."""
_open: Final = ExitStack()
_running: Final[dict[Path, Mapping[str, str]]] = {}


def _bookies(count: int) -> Place:
    @contextmanager
    def place(folder: Path) -> Iterator[Mapping[str, str]]:
        with BookieProcesses(folder, count) as processes:
            yield {
                **ensemble_settings(processes.addresses),
                "metadataStoreUrl": f"file:{folder / 'metadata.sqlite'}",
            }

    return place


@contextmanager
def _cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    """A bookie, and an embedded store that `magnetar metadata serve` shares."""
    with BookieProcesses(folder, 1) as bookies, TemporaryDirectory(prefix="store-") as place:
        # In a folder of a short name: the path of a Unix socket has 107 bytes at most.
        command = [sys.executable, "-m", "magnetar", "metadata", "serve", place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                _, _, url = server.stdout.readline().rstrip("\n").partition("=")
                yield {"bookieAddress": bookies.addresses[0], "metadataStoreUrl": url}
            finally:
                server.kill()


@contextmanager
def _apache(folder: Path) -> Iterator[Mapping[str, str]]:
    """In a node of its own of the ZooKeeper that runs."""
    servers, root = os.environ[ZOOKEEPER], f"/magnetar-test-{uuid.uuid4().hex[:12]}"
    client = KazooClient(hosts=servers)
    client.start()
    bookie = ApacheBookie(os.environ[CLASSES], folder, servers + root)
    try:
        _make_cluster(client, root, folder)
        bookie.start()
        yield {"bookieAddress": bookie.address, "metadataStoreUrl": f"zk:{servers}{root}"}
    finally:
        bookie.stop()
        client.delete(root, recursive=True)
        client.stop()
        client.close()


def _make_cluster(client: KazooClient, root: str, folder: Path) -> None:
    """The nodes that BookKeeper's own tool has made, which takes seconds, and so once per run."""
    with client.Lock(f"{_FORMATTED}-lock"):  # the workers of a run share the ZooKeeper
        _format_once(client, folder)
    _copy(client, _FORMATTED, root)


def _format_once(client: KazooClient, folder: Path) -> None:
    if not client.exists(_FORMATTED):
        client.ensure_path(_FORMATTED)
        ApacheBookie(os.environ[CLASSES], folder, os.environ[ZOOKEEPER] + _FORMATTED).format()


def _copy(client: KazooClient, source: str, target: str) -> None:
    client.create(target, client.get(source)[0])
    for name in client.get_children(source):
        _copy(client, f"{source}/{name}", f"{target}/{name}")


PLACES: Final[Mapping[str, Place]] = {
    "bookie": _bookies(1),
    "bookies": _bookies(3),
    "cluster": _cluster,
    "apache": _apache,
}
