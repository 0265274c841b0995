"""ZookeeperNodes: blocking calls on nodes, in which a missing node is a value and all else is ZookeeperError.

Each call may be made in any thread except kazoo's own. While ZooKeeper is away a call waits for it without a limit, so a
caller that must not wait looks at `connected` first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from foundation.zookeeper.errors import ZookeeperError
from foundation.zookeeper.many_reads import CHILDREN, DATA, Answer, ManyReads, NodeData

_IN_A_REQUEST = 50
"""Reads: a node may have 1 MiB, and the answer is in memory at once."""


class ReadNode(NamedTuple):
    """A node as it was at the moment of its read."""

    path: str
    """From ZooKeeper's top on."""
    value: bytes
    """b"" for most parents."""
    version: int
    """Counts the writes of the value."""
    modified_ms: int
    """Time of the last write, milliseconds since the epoch by ZooKeeper's clock."""
    children: int
    """Number of nodes directly below."""


class ZookeeperNodes:
    """The nodes that one client reads and writes. Paths begin at ZooKeeper's top."""

    def __init__(self, client: KazooClient) -> None:
        """`client` is started, and belongs to a `ZookeeperSession`."""
        self._client = client

    @property
    def connected(self) -> bool:
        """True while there is a connection at this moment."""
        return bool(self._client.connected)

    def get(self, path: str) -> bytes | None:
        """Returns the node's value, None for a missing node."""
        with _errors():
            try:
                value: bytes = self._client.get(path)[0]
            except NoNodeError:
                return None
            return value

    def get_many(self, paths: Sequence[str]) -> Iterator[ReadNode]:
        """Returns those of the nodes that exist, in the order of `paths`.

        All requests are out at once: callers pass as many paths as ZooKeeper should serve at a time.
        """
        for path, found in self._read_many(DATA, paths):
            if isinstance(found, NodeData):
                yield ReadNode(path, *found)

    def exists(self, path: str) -> bool:
        """Returns True when there is such a node."""
        with _errors():
            return self._client.exists(path) is not None

    def owner(self, path: str) -> int | None:
        """Returns the session that an ephemeral node belongs to, None for a lasting or missing node."""
        with _errors():
            stat = self._client.exists(path)
            return None if stat is None else stat.owner_session_id

    def children(self, path: str) -> list[str]:
        """Returns the names directly below, unsorted; none for a missing node."""
        with _errors():
            try:
                names: list[str] = self._client.get_children(path)
            except NoNodeError:
                return []
            return names

    def children_many(self, paths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Returns each path with the names directly below it, in the order of `paths`; all requests are out at once."""
        for path, found in self._read_many(CHILDREN, paths):
            yield path, found if isinstance(found, list) else []

    def _read_many(self, kind: int, paths: Sequence[str]) -> Iterator[tuple[str, Answer]]:
        with _errors():
            parts = [paths[at : at + _IN_A_REQUEST] for at in range(0, len(paths), _IN_A_REQUEST)]
            # A list and not a generator: every request must be out before the first answer is awaited.
            answers = [self._client.handler.async_result() for _ in parts]
            for part, answer in zip(parts, answers, strict=True):
                self._client._call(ManyReads([(kind, path) for path in part]), answer)
            for part, answer in zip(parts, answers, strict=True):
                for path, found in zip(part, answer.get(), strict=True):
                    if isinstance(found, Exception) and not isinstance(found, NoNodeError):
                        raise found
                    yield path, found

    def create(self, path: str, value: bytes, *, ephemeral: bool = False, parents: bool = False) -> bool:
        """Makes a node; returns False for one that exists.

        An ephemeral node ends with the session. `parents` makes the nodes above it as needed.
        """
        with _errors():
            try:
                self._client.create(path, value, ephemeral=ephemeral, makepath=parents)
            # Not an error: an attempt whose answer was lost may have made the node, and the caller looks at it.
            except NodeExistsError:
                return False
            return True

    def ensure(self, path: str) -> None:
        """Makes the node and its parents where they are missing. Each that is made has no value."""
        with _errors():
            self._client.ensure_path(path)

    def delete(self, path: str) -> None:
        """Removes a node; a missing one is fine."""
        with _errors(), contextlib.suppress(NoNodeError):
            self._client.delete(path)

    def sync(self, path: str) -> None:
        """Waits until our server has every write before this call.

        Without it a server that lags may deny a node that was just made.
        """
        with _errors():
            self._client.sync(path)

    def wait_until_gone(self, path: str, wait_s: float) -> bool:
        """Blocks until the node is removed, at most `wait_s` seconds. Returns False when it is still there."""
        gone = threading.Event()
        with _errors():
            # Asked with the watch in one request: a node that goes between two requests would be waited for in vain.
            if self._client.exists(path, watch=lambda _event: gone.set()) is None:
                return True
        return wait_s > 0 and gone.wait(wait_s)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise ZookeeperError(f"{type(error).__name__} {error}") from error
