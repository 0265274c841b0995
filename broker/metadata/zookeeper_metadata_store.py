"""The metadata store that brokers and bookies share: one node of ZooKeeper per key, laid out as Pulsar lays them out.

A key's version is its node's. ZooKeeper keeps a tree, so a key below another one needs the nodes above it: those that
nobody has put hold no bytes and count as absent here, and they go when the last key below them goes. That is why a
value has at least one byte. Writes wait in a queue; all that wait and have different keys are asked for at once, and
the next group is begun when every one of them is answered, so writes of one key never overtake each other. Writes that
belong together are one transaction of ZooKeeper's.

A write whose connection broke is asked again. If the first attempt was carried out after all, the node shows it: our
value, one version further.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import ZnodeStat

from broker.metadata.metadata_store import ABSENT, Put, Versioned
from broker.metadata.metadata_url import ZookeeperUrl
from broker.metadata.zookeeper_session import Answer, Pending, ZookeeperSession
from broker.model.errors import BadVersion, MetadataError

GROUP_MAX = 256
"""Requests that are out at once; ZooKeeper syncs what waits together."""
VALUE_BYTES_MAX = 1_000_000
"""A server drops a connection that sends a frame of 1 MiB (its jute.maxbuffer)."""
ANY_VERSION = -1


@dataclass(slots=True)
class _Write:
    keys: frozenset[str]
    apply: Callable[[], Awaitable[list[int]]]
    """Answers the keys' new versions."""
    done: asyncio.Future[list[int]]


class ZookeeperMetadataStore:
    """Open with `await ZookeeperMetadataStore.open(...)`."""

    def __init__(self, session: ZookeeperSession, timeout_s: float) -> None:
        """`timeout_s`: how long a read may take, and how long `close` waits for writes."""
        self.session = session
        self._root = session.url.root
        self._timeout_s = timeout_s
        self._queue: deque[_Write] = deque()
        self._wanted = asyncio.Event()
        self._closing = False
        self._worker = asyncio.create_task(self._write_groups(), name="metadata writes")

    @classmethod
    async def open(
        cls, url: ZookeeperUrl, *, session_timeout_s: float, timeout_s: float
    ) -> ZookeeperMetadataStore:
        """MetadataError when no ZooKeeper answers within the session's timeout."""
        return cls(await ZookeeperSession.connect(url, session_timeout_s), timeout_s)

    async def get(self, key: str) -> Versioned | None:
        path = self._path(key)
        async with self._reading(key):
            found = await self._node(path)
        return found if found is not None and found.value else None

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """As promised, and MetadataError for a value that a node does not take. Waits while ZooKeeper is away."""
        path = self._path(key)
        _check_size(key, value)
        (version,) = await self._submit(frozenset((key,)), lambda: self._put(path, value, expected))
        return version

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        """As `put`. A frame has to take them all."""
        _check_size(puts[0].key, b"".join(put.value for put in puts))
        at_paths = [put._replace(key=self._path(put.key)) for put in puts]
        return await self._submit(frozenset(put.key for put in puts), lambda: self._put_all(at_paths))

    async def delete(self, key: str, expected: int | None = None) -> None:
        path = self._path(key)
        await self._submit(frozenset((key,)), lambda: self._delete(path, expected))

    async def children(self, key: str) -> list[str]:
        path = self._path(key.rstrip("/")) or "/"
        async with self._reading(key):
            answer = await self.session.ask(lambda: self.session.client.get_children_async(path))
        if answer.refused(NoNodeError):
            return []
        names = answer.value_or_raise()
        assert isinstance(names, list)
        return sorted(names)

    async def close(self) -> None:
        """Answer all that waits, then end the session. What waits too long for ZooKeeper, and later writes, raise
        MetadataError."""
        self._closing = True
        self._wanted.set()
        try:
            await asyncio.wait((self._worker,), timeout=self._timeout_s)
        finally:
            await self.session.close()
            await self._worker

    # Writes.

    async def _submit(self, keys: frozenset[str], apply: Callable[[], Awaitable[list[int]]]) -> list[int]:
        if self._closing:
            raise MetadataError("the metadata store is closed")
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Write(keys, apply, done))
        self._wanted.set()
        return await done

    async def _write_groups(self) -> None:
        while not (self._closing and not self._queue):
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                group = self._next_group()
                outcomes = await asyncio.gather(*(write.apply() for write in group), return_exceptions=True)
                for write, outcome in zip(group, outcomes, strict=True):
                    _settle(write, outcome)

    def _next_group(self) -> list[_Write]:
        """What waits, up to the second write of a key."""
        group: list[_Write] = []
        keys: set[str] = set()
        while self._queue and len(group) < GROUP_MAX and keys.isdisjoint(self._queue[0].keys):
            write = self._queue.popleft()
            keys |= write.keys
            group.append(write)
        return group

    async def _put(self, path: str, value: bytes, expected: int | None) -> list[int]:
        if expected is None:
            return [await self._put_whatever_is_there(path, value)]
        if expected == ABSENT:
            return [await self._create(path, value)]
        return [await self._set(path, value, expected)]

    async def _put_whatever_is_there(self, path: str, value: bytes) -> int:
        while True:
            answer = await self.session.ask(lambda: self.session.client.set_async(path, value))
            if not answer.refused(NoNodeError):
                return _version_of(answer.value_or_raise())
            with contextlib.suppress(BadVersion):  # Somebody made it in between.
                return await self._create(path, value)

    async def _create(self, path: str, value: bytes) -> int:
        while True:
            answer = await self.session.ask(lambda: self.session.client.create_async(path, value))
            if answer.refused(NoNodeError):
                await self._create_parents(path)
            elif not answer.refused(NodeExistsError):
                answer.value_or_raise()
                return 0
            elif (found := await self._node(path)) is None:
                continue  # It has gone meanwhile.
            elif not found.value:
                return await self._set(path, value, found.version)
            elif answer.asked > 1 and found == Versioned(value, 0):
                return 0
            else:
                raise BadVersion(f"{path} exists, in version {found.version}")

    async def _set(self, path: str, value: bytes, expected: int) -> int:
        answer = await self.session.ask(lambda: self.session.client.set_async(path, value, expected))
        if answer.refused(BadVersionError) or answer.refused(NoNodeError):
            found = await self._node(path)
            if answer.asked > 1 and found == Versioned(value, expected + 1):
                return found.version
            raise BadVersion(f"{path} does not have the expected version {expected}")
        return _version_of(answer.value_or_raise())

    async def _put_all(self, puts: list[Put]) -> list[int]:
        """`puts` with paths as keys."""
        placeholders: dict[str, int] = {}
        """Versions of nodes that are there and count as absent."""
        while True:
            answer = await self.session.ask(lambda: self._begin_transaction(puts, placeholders))
            results = answer.value_or_raise()
            assert isinstance(results, list)
            refused = next((each for each in zip(puts, results, strict=True) if _is_refusal(each[1])), None)
            if refused is None:
                return [0 if isinstance(result, str) else _version_of(result) for result in results]
            put, why = refused
            if isinstance(why, NoNodeError) and put.expected == ABSENT and put.key not in placeholders:
                await self._create_parents(put.key)
            elif put.expected != ABSENT or not await self._is_absent(put.key, placeholders):
                return await self._versions_if_ours(puts, placeholders, answer)

    def _begin_transaction(self, puts: list[Put], placeholders: dict[str, int]) -> Pending:
        transaction: TransactionRequest = self.session.client.transaction()
        for path, value, expected in puts:
            version = placeholders.get(path, expected)
            if version == ABSENT:
                transaction.create(path, value)
            else:
                transaction.set_data(path, value, version)
        pending: Pending = transaction.commit_async()
        return pending

    async def _is_absent(self, path: str, placeholders: dict[str, int]) -> bool:
        """Look at a node that is not as the transaction believed. True when the next attempt may go better."""
        placeholders.pop(path, None)
        found = await self._node(path)
        if found is not None and not found.value:
            placeholders[path] = found.version
        return found is None or not found.value

    async def _versions_if_ours(
        self, puts: list[Put], placeholders: dict[str, int], answer: Answer
    ) -> list[int]:
        """Of a transaction that was refused. If it was asked before, that may have been carried out."""
        wanted = [Versioned(value, placeholders.get(path, expected) + 1) for path, value, expected in puts]
        if answer.asked > 1 and await asyncio.gather(*(self._node(put.key) for put in puts)) == wanted:
            return [each.version for each in wanted]
        raise BadVersion(f"{', '.join(put.key for put in puts)} do not all have the expected versions")

    async def _delete(self, path: str, expected: int | None) -> list[int]:
        await self._delete_node(path, expected)
        await self._delete_empty_parents(path)
        return [0]

    async def _delete_node(self, path: str, expected: int | None) -> None:
        version = ANY_VERSION if expected is None else expected
        answer = await self.session.ask(lambda: self.session.client.delete_async(path, version))
        if answer.refused(NotEmptyError):
            await self._set(path, b"", version)
        elif answer.refused(NoNodeError):
            if expected is not None and answer.asked == 1:
                raise BadVersion(f"{path} does not have the expected version {expected}")
        elif answer.refused(BadVersionError):
            raise BadVersion(f"{path} does not have the expected version {expected}")
        else:
            answer.value_or_raise()

    async def _create_parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        answer = await self.session.ask(lambda: self.session.client.create_async(parent, b""))
        if answer.refused(NoNodeError):
            await self._create_parents(parent)
        elif not answer.refused(NodeExistsError):
            answer.value_or_raise()

    async def _delete_empty_parents(self, path: str) -> None:
        """Those that nobody has put. One that gets a child or a value meanwhile is not deleted: ZooKeeper looks."""
        while (path := path.rpartition("/")[0]) != self._root:
            found = await self._node(path)
            if found is None or found.value:
                return
            answer = await self.session.ask(partial(self.session.client.delete_async, path, found.version))
            if answer.refusal is not None:
                return

    async def _node(self, path: str) -> Versioned | None:
        """The node as it is, also one without bytes."""
        answer = await self.session.ask(lambda: self.session.client.get_async(path))
        if answer.refused(NoNodeError):
            return None
        pair = answer.value_or_raise()
        assert isinstance(pair, tuple)
        return Versioned(pair[0], _version_of(pair[1]))

    # Keys and time.

    def _path(self, key: str) -> str:
        parts = key.split("/")[1:]
        if any(part in ("", ".", "..") for part in parts):
            raise MetadataError(f"{key!r} cannot be a node of ZooKeeper")
        return self._root + key

    @contextlib.asynccontextmanager
    async def _reading(self, key: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            hosts = self.session.url.hosts
            raise MetadataError(
                f"ZooKeeper at {hosts} did not answer for {key} within {self._timeout_s:g} s"
            ) from None


def _version_of(stat: object) -> int:
    assert isinstance(stat, ZnodeStat)
    return int(stat.version)


def _is_refusal(result: object) -> bool:
    """Whether an operation of a transaction is the one to blame; the others were undone, or not tried, for it."""
    return isinstance(result, KazooException) and not isinstance(
        result, RolledBackError | RuntimeInconsistency
    )


def _check_size(key: str, value: bytes) -> None:
    if not 0 < len(value) <= VALUE_BYTES_MAX:
        raise MetadataError(
            f"{key}: {len(value)} bytes, and a node of ZooKeeper takes 1 to {VALUE_BYTES_MAX}"
        )


def _settle(write: _Write, outcome: list[int] | BaseException) -> None:
    if write.done.done():  # The caller was cancelled; what it asked for has happened all the same.
        return
    if isinstance(outcome, BaseException):
        write.done.set_exception(outcome)
    else:
        write.done.set_result(outcome)
