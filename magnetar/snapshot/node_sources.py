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

from bookkeeper.metadata.sqlite_checks import crc_of
from foundation.model.errors import MetadataError
from foundation.zookeeper.errors import ZookeeperError, require_kazoo
from foundation.zookeeper.url import ZookeeperUrl, parse_store_url
from magnetar.snapshot.node_rows import Node

if TYPE_CHECKING:
    from foundation.zookeeper.nodes import ZookeeperNodes

_FILE = "file:"
_UNIX = "unix:"
_ROWS_AT_ONCE = 10_000
_REQUESTS_OUT = 500
"""Requests to ZooKeeper that are out at once: enough to be quick, few enough to leave it to the brokers."""
_CONNECT_S = 15
_ZOOKEEPERS_OWN = "/zookeeper"


def nodes_of(url: str) -> Iterator[Node]:
    """Yields every node below the store's root. `url` as `metadataStoreUrl` has it.

    Raises MetadataError, at once or on the way, when there is no such store or it cannot be read.
    """
    place = _place(url)
    return _in_file(place) if isinstance(place, Path) else _in_zookeeper(place)


def _place(url: str) -> Path | ZookeeperUrl:
    """Returns the file or the ZooKeeper of a URL. Raises MetadataError."""
    try:
        zookeeper = parse_store_url(url)
    except ValueError as error:
        raise MetadataError(f"{url}: {error}") from error
    if zookeeper is not None:
        return zookeeper
    if url.startswith(_UNIX):
        raise MetadataError(
            f"{url}: a served store is read from its file, file:PATH, also while it is served"
        )
    if not url.startswith(_FILE):
        raise MetadataError(f"{url}: allowed is file:PATH or zk:host:port[/chroot]")
    return Path(url.removeprefix(_FILE))


def node_at(url: str, path: str) -> tuple[Node | None, list[str]]:
    """Returns the node at a path, None where there is none, and the names directly below. Raises MetadataError."""
    place = _place(url)
    if isinstance(place, Path):
        return _node_in_file(place, path)
    with _session(place) as nodes:
        full = f"{place.root}{path}" or "/"
        found = next(nodes.get_many([full]), None)
        if found is None:
            return None, []
        node = Node(path, found.value, found.version, found.modified_ms, found.children)
        return node, sorted(nodes.children(full))


def damaged_records(url: str) -> list[str]:
    """Returns the paths in a file whose values do not fit their checksums; none for ZooKeeper. Raises MetadataError."""
    place = _place(url)
    if not isinstance(place, Path):
        return []
    with _store(place) as store:
        if "crc" not in [row[1] for row in store.execute("PRAGMA table_info(node)")]:
            return []  # Of an earlier version.
        rows = store.execute("SELECT key, value, crc FROM node WHERE crc IS NOT NULL")
        return [key for key, value, crc in rows if crc_of(key, value) != crc]


def _node_in_file(path: Path, key: str) -> tuple[Node | None, list[str]]:
    with _store(path) as store:
        row = store.execute("SELECT value, version FROM node WHERE key = ?", (key,)).fetchone()
        below = store.execute("SELECT key FROM node WHERE key >= ? AND key < ?", (f"{key}/", f"{key}0"))
        names = {found.removeprefix(f"{key}/").partition("/")[0] for (found,) in below}
    if row is None:
        return None, sorted(names)
    value, version = row
    return Node(key, value, version, None, None), sorted(names)


@contextlib.contextmanager
def _store(path: Path) -> Iterator[sqlite3.Connection]:
    # SQLite would make an empty file where there is none.
    if not path.is_file():
        raise MetadataError(f"{path}: there is no such metadata store")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as store:
            yield store
    except sqlite3.Error as error:
        raise MetadataError(f"{path}: {error}") from error


@contextlib.contextmanager
def _session(url: ZookeeperUrl) -> Iterator[ZookeeperNodes]:
    try:
        require_kazoo(str(url))
        from foundation.zookeeper.session import ZookeeperSession

        with contextlib.closing(ZookeeperSession.connect(url, _CONNECT_S, read_only=True)) as session:
            if not session.nodes.exists(url.root or "/"):
                raise MetadataError(f"{url}: ZooKeeper has no {url.root}")
            yield session.nodes
    except ZookeeperError as error:
        raise MetadataError(f"{url}: {error}") from error


def _in_file(path: Path) -> Iterator[Node]:
    with _store(path) as store:
        rows = store.execute("SELECT key, value, version FROM node ORDER BY key")
        while some := rows.fetchmany(_ROWS_AT_ONCE):
            for key, value, version in some:
                yield Node(key, value, version, None, None)


def _in_zookeeper(url: ZookeeperUrl) -> Iterator[Node]:
    with _session(url) as nodes:
        yield from _walk(nodes, url.root)


def _walk(nodes: ZookeeperNodes, root: str) -> Iterator[Node]:
    # Depth first: memory holds the names of siblings that wait, not a whole level of the tree.
    waiting = _below(root, nodes.children(root or "/"))
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
        for path, names in nodes.children_many(parents):
            waiting += _below(path, names)


def _below(path: str, names: list[str]) -> list[str]:
    return [child for name in names if (child := f"{path}/{name}") != _ZOOKEEPERS_OWN]
