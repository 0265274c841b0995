"""The nodes of a metadata store, one after the other, read beside those who use it.

The embedded store is read in one transaction and is as of one moment. ZooKeeper is walked: each node is as of the
moment in which it was read, and one that went meanwhile is left out.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from broker.metadata.metadata_url import ZookeeperUrl, parse_zookeeper_url
from broker.model.errors import MetadataError
from magnetar.snapshot.node_rows import Node

if TYPE_CHECKING:
    from kazoo.client import KazooClient

FILE = "file:"
ROWS_AT_ONCE = 10_000
REQUESTS_OUT = 500
"""Asked of ZooKeeper at once: more than one at a time, few enough to leave it to others."""
CONNECT_S = 15
ZOOKEEPERS_OWN = "/zookeeper"


def nodes_of(url: str) -> Iterator[Node]:
    """MetadataError where there is no such store, or none that can be read."""
    try:
        zookeeper = parse_zookeeper_url(url)
    except ValueError as error:
        raise MetadataError(f"{url}: {error}") from error
    if zookeeper is not None:
        return _in_zookeeper(zookeeper)
    if not url.startswith(FILE):
        raise MetadataError(f"{url}: allowed is file:PATH or zk:host:port[/chroot]")
    return _embedded(Path(url.removeprefix(FILE)))


def _embedded(path: Path) -> Iterator[Node]:
    if not path.is_file():
        raise MetadataError(f"{path}: there is no such metadata store")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            rows = store.execute("SELECT key, value, version FROM node ORDER BY key")
            while some := rows.fetchmany(ROWS_AT_ONCE):
                for key, value, version in some:
                    yield Node(key, value, version, None, None)
    except sqlite3.Error as error:
        raise MetadataError(f"{path}: {error}") from error


def _in_zookeeper(url: ZookeeperUrl) -> Iterator[Node]:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=url.hosts, read_only=True)
    try:
        client.start(timeout=CONNECT_S)
        if client.exists(url.root or "/") is None:
            raise MetadataError(f"{url}: ZooKeeper has no {url.root}")
        yield from _walk(client, url.root)
    except (KazooException, KazooTimeoutError) as error:
        raise MetadataError(f"{url}: {type(error).__name__} {error}") from error
    finally:
        client.stop()
        client.close()


def _walk(client: KazooClient, root: str) -> Iterator[Node]:
    """Depth first, some nodes at a time: what is kept are the names of siblings that wait."""
    from kazoo.exceptions import NoNodeError

    waiting = _children(client, root or "/")
    while waiting:
        some = waiting[-REQUESTS_OUT:]
        del waiting[-REQUESTS_OUT:]
        answers = [client.get_async(path) for path in some]
        parents = []
        for path, answer in zip(some, answers, strict=True):
            with contextlib.suppress(NoNodeError):
                value, stat = answer.get()
                yield Node(path.removeprefix(root), value, stat.version, stat.mtime, stat.numChildren)
                if stat.numChildren:
                    parents.append(path)
        for path in parents:
            waiting += _children(client, path)


def _children(client: KazooClient, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        names = client.get_children(path)
    except NoNodeError:
        return []
    below = [f"{path.rstrip('/')}/{name}" for name in names]
    return [child for child in below if child != ZOOKEEPERS_OWN]
