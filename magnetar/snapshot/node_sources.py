"""Reads the nodes of a metadata store one after the other, while brokers use it.

The SQLite file is read in one transaction, so its snapshot is as of one moment. ZooKeeper has no such thing: each node is
as of the moment of its read, and one that is removed meanwhile is left out.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from foundation.model.errors import MetadataError
from foundation.zookeeper.errors import ZookeeperError, require_kazoo
from foundation.zookeeper.url import ZookeeperUrl, parse_store_url
from magnetar.snapshot.node_rows import Node

if TYPE_CHECKING:
    from foundation.zookeeper.nodes import ZookeeperNodes

_FILE = "file:"
_ROWS_AT_ONCE = 10_000
_REQUESTS_OUT = 500
"""Requests to ZooKeeper that are out at once: enough to be quick, few enough to leave it to the brokers."""
_CONNECT_S = 15
_ZOOKEEPERS_OWN = "/zookeeper"


def nodes_of(url: str) -> Iterator[Node]:
    """Yields every node below the store's root. `url` as `metadataStoreUrl` has it.

    Raises MetadataError, at once or on the way, when there is no such store or it cannot be read.
    """
    try:
        zookeeper = parse_store_url(url)
    except ValueError as error:
        raise MetadataError(f"{url}: {error}") from error
    if zookeeper is not None:
        return _in_zookeeper(zookeeper)
    if not url.startswith(_FILE):
        raise MetadataError(f"{url}: allowed is file:PATH or zk:host:port[/chroot]")
    return _in_file(Path(url.removeprefix(_FILE)))


def _in_file(path: Path) -> Iterator[Node]:
    # SQLite would make an empty file where there is none.
    if not path.is_file():
        raise MetadataError(f"{path}: there is no such metadata store")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            rows = store.execute("SELECT key, value, version FROM node ORDER BY key")
            while some := rows.fetchmany(_ROWS_AT_ONCE):
                for key, value, version in some:
                    yield Node(key, value, version, None, None)
    except sqlite3.Error as error:
        raise MetadataError(f"{path}: {error}") from error


def _in_zookeeper(url: ZookeeperUrl) -> Iterator[Node]:
    try:
        require_kazoo(str(url))
        from foundation.zookeeper.session import ZookeeperSession

        session = ZookeeperSession.connect(url, _CONNECT_S, read_only=True)
        with contextlib.closing(session):
            if not session.nodes.exists(url.root or "/"):
                raise MetadataError(f"{url}: ZooKeeper has no {url.root}")
            yield from _walk(session.nodes, url.root)
    except ZookeeperError as error:
        raise MetadataError(f"{url}: {error}") from error


def _walk(nodes: ZookeeperNodes, root: str) -> Iterator[Node]:
    # Depth first: memory holds the names of siblings that wait, not a whole level of the tree.
    waiting = _children(nodes, root or "/")
    while waiting:
        some = waiting[-_REQUESTS_OUT:]
        del waiting[-_REQUESTS_OUT:]
        parents = []
        for node in nodes.get_many(some):
            yield Node(
                node.path.removeprefix(root), node.value, node.version, node.modified_ms, node.children
            )
            if node.children:
                parents.append(node.path)
        for path in parents:
            waiting += _children(nodes, path)


def _children(nodes: ZookeeperNodes, path: str) -> list[str]:
    below = [f"{path.rstrip('/')}/{name}" for name in nodes.children(path)]
    return [child for child in below if child != _ZOOKEEPERS_OWN]
