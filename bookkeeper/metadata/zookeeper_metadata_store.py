"""ZookeeperMetadataStore: the metadata store that brokers and bookies share, one node of ZooKeeper per key.

Nodes are laid out as Pulsar and BookKeeper lay them out, so their tools find them. This module joins the parts:
`zookeeper_requests` asks, `zookeeper_reads` joins reads, `zookeeper_writes` compares and sets, `write_groups` keeps the
order of writes, `zookeeper_watches` tells of changes. Pulsar's name for the same thing: ZKMetadataStore.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from bookkeeper.metadata.metadata_store import (
    ABSENT,
    Check,
    Ephemeral,
    Put,
    SessionState,
    Stop,
    Versioned,
    Write,
)
from bookkeeper.metadata.write_groups import WriteGroups
from bookkeeper.metadata.zookeeper_reads import ZookeeperReads
from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests
from bookkeeper.metadata.zookeeper_watches import ZookeeperWatches
from bookkeeper.metadata.zookeeper_writes import ZookeeperWrites
from foundation.model.errors import InvalidTopicName, MetadataError, MetadataUnanswered
from foundation.zookeeper.tls import ZookeeperTls
from foundation.zookeeper.url import ZookeeperUrl

VALUE_BYTES_MAX = 1_000_000
"""Leaves room for paths in a request."""
REQUEST_BYTES_MAX = 1_048_000
"""A server drops a connection that sends a frame of 1 MiB (its jute.maxbuffer), and the request would be sent again."""
OPERATION_BYTES = 48
"""Bytes of one operation of a request beside its path and value, at most: those of a creation."""


class KeyRefused(MetadataError):
    """No node of ZooKeeper can have the key; that of a topic `..` is one. Asking again does not help."""

    code = InvalidTopicName.code
    status = 412


class ZookeeperMetadataStore:
    """`MetadataStore` in ZooKeeper; `open` makes one."""

    value_bytes_max: Final = VALUE_BYTES_MAX
    """Longest value, in bytes."""
    is_shared: Final = True
    """Brokers, bookies and tools write to it."""

    def __init__(self, requests: ZookeeperRequests, timeout_s: float) -> None:
        """`timeout_s` limits each read, and the writes during `close`."""
        self.requests = requests
        """Also for ledger ids and available bookies, which live in the same session."""
        self._reads = ZookeeperReads(requests)
        self._writes = ZookeeperWrites(requests, self._reads)
        self._groups = WriteGroups()
        self._watches = ZookeeperWatches(requests)
        self._ephemeral: set[str] = set()
        """Keys that were made to end with the session, until they are deleted."""
        self._timeout_s = timeout_s

    @classmethod
    async def open(
        cls,
        url: ZookeeperUrl,
        *,
        session_timeout_s: float,
        timeout_s: float,
        tls: ZookeeperTls | None = None,
    ) -> ZookeeperMetadataStore:
        """Connects, with TLS if `tls` is given.

        Raises MetadataError when no ZooKeeper answers within the session's timeout.
        """
        return cls(await ZookeeperRequests.connect(url, session_timeout_s, tls), timeout_s)

    async def get(self, key: str) -> Versioned | None:
        """Raises MetadataError when ZooKeeper does not answer within the store's timeout."""
        path = self._path(key)
        async with self._reading(key):
            found = await self._reads.node(path)
        # A node without bytes only carries the keys below it, and counts as absent (law 2 of `zookeeper_writes`).
        return Versioned(found.value, found.version) if found is not None and found.value else None

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Waits while ZooKeeper is away. Raises MetadataError for a value of more than 1,000,000 bytes."""
        path = self._path(key)
        _check_size([Put(path, value, ABSENT)])
        (version,) = await self._groups.submit(
            frozenset((key,)), lambda: self._writes.put(path, value, expected)
        )
        return version

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        """Writes all values together, otherwise as `put`.

        Paths and values, also the paths of checks, have at most 1,048,000 bytes with 48 for each, because they are one
        request.
        """
        at_paths = [put._replace(key=self._path(put.key)) for put in puts]
        _check_size(at_paths)
        ephemeral = {put.key for put in puts if isinstance(put, Ephemeral)}
        self._ephemeral |= ephemeral
        # As in `delete`: what is checked is a lease of this session, and the next one's node has the same version.
        written = frozenset(put.key for put in puts if not isinstance(put, Check))
        session_id = self.requests.session_id if len(written) < len(puts) else None
        # Writes under one lease are out together: a check changes nothing of its key.
        return await self._groups.submit(
            written,
            lambda: self._writes.put_all(at_paths, session_id),
            urgent=bool(ephemeral),
        )

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Waits while ZooKeeper is away. Raises MetadataError when the session ends meanwhile."""
        path = self._path(key)
        urgent = key in self._ephemeral
        self._ephemeral.discard(key)
        # Now, and not when the group is sent: the session may end while the deletion waits.
        session_id = self.requests.session_id
        await self._groups.submit(
            frozenset((key,)), lambda: self._writes.delete(path, expected, session_id), urgent=urgent
        )

    async def children(self, key: str) -> list[str]:
        """Raises MetadataError when ZooKeeper does not answer within the store's timeout."""
        path = self._path(key.rstrip("/")) or "/"
        async with self._reading(key):
            return sorted(await self._reads.children(path))

    async def sync(self) -> None:
        """Raises MetadataError when ZooKeeper does not answer within the store's timeout."""
        root = self.requests.url.root or "/"
        async with self._reading(root):
            (await self.requests.ask(lambda: self.requests.client.sync_async(root))).value_or_raise()

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        """Raises MetadataError when ZooKeeper does not answer within the store's timeout."""
        async with self._reading(key):
            return await self._watches.add(self._path(key), changed)

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Raises MetadataError when ZooKeeper does not answer within the store's timeout."""
        async with self._reading(key):
            return await self._watches.add_children(self._path(key.rstrip("/")) or "/", changed)

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Tells of the session with ZooKeeper."""
        self.requests.listen(told)

    async def close(self) -> None:
        """Finishes the writes that wait, then ends the session.

        Writes that wait for ZooKeeper longer than the store's timeout raise MetadataError, and so do later ones.
        """
        try:
            await self._groups.drain(self._timeout_s)
        finally:
            await self._watches.close()
            # Before `ended`: writes that still wait for ZooKeeper get their error from the closed session.
            await self.requests.close()
            await self._groups.ended()

    def _path(self, key: str) -> str:
        # ZooKeeper refuses these parts itself, but with an error that does not name the key.
        parts = key.split("/")[1:]
        if any(part in ("", ".", "..") for part in parts):
            raise KeyRefused(f"{key!r} cannot be a node of ZooKeeper: choose another name")
        return self.requests.url.root + key

    @contextlib.asynccontextmanager
    async def _reading(self, key: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            hosts = self.requests.url.hosts
            raise MetadataUnanswered(
                f"ZooKeeper at {hosts} did not answer for {key} within {self._timeout_s:g} s"
            ) from None


def _check_size(puts: Sequence[Write]) -> None:
    """Raises MetadataError for a value that no node takes, and for more than a request takes; `puts` have paths as keys."""
    request_bytes = 0
    for put in puts:
        value_bytes = 0 if isinstance(put, Check) else len(put.value)
        if value_bytes > VALUE_BYTES_MAX or not (value_bytes or isinstance(put, Check)):
            raise MetadataError(
                f"{put.key}: {value_bytes} bytes, and a node of ZooKeeper takes 1 to {VALUE_BYTES_MAX}"
            )
        request_bytes += OPERATION_BYTES + len(put.key.encode()) + value_bytes
    if request_bytes > REQUEST_BYTES_MAX:
        raise MetadataError(
            f"{puts[0].key} and {len(puts) - 1} more: {request_bytes} bytes, and a request to ZooKeeper takes "
            f"{REQUEST_BYTES_MAX}"
        )
