"""Metadata stores of a cluster in the simulation: one leader, and a follower for each session.

A follower applies the leader's changes late, so its reads are stale until `sync`, or until a write of its own session is
answered. Each request is late on both ways, and its answer may be lost: the caller cannot tell that from a lost request.
Notices of watches are late. A follower can lose its leader for a while (`freeze`): it goes on answering reads, of before. A
session can be cut off from its follower (`cut`): its requests wait, its notices are lost, and then all watches tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import (
    ABSENT,
    VALUE_BYTES_MAX,
    Check,
    SessionState,
    Stop,
    Versioned,
    Write,
)
from foundation.model.errors import MetadataError, MetadataUnanswered
from tests.sim.loop import SimLoop

T = TypeVar("T")


class Witness(Protocol):
    """Sees each change that a session makes, at the leader."""

    def written(self, session: Leader, key: str, value: bytes) -> None:
        """A value is stored."""
        ...

    def deleted(self, session: Leader, key: str) -> None:
        """A key is about to be removed by a request."""
        ...


class Leader(MemoryMetadataStore):
    """One session at the leader; all sessions write one log."""

    def __init__(self, cluster: Cluster, holder: FollowerStore | None = None) -> None:
        super().__init__()
        self.holder = holder
        """Whose session it is; None of the leader's own."""
        if cluster.first is not None:
            first = cluster.first
            self._values, self._children = first._values, first._children
            self._watches, self._owners = first._watches, first._owners
        self._cluster = cluster

    def _set(self, key: str, value: bytes, version: int, *, ephemeral: bool = False) -> int:
        super()._set(key, value, version, ephemeral=ephemeral)
        self._cluster.changed(key, Versioned(value, version))
        if self._cluster.witness is not None:
            self._cluster.witness.written(self, key, value)
        return version

    async def delete(self, key: str, expected: int | None = None) -> None:
        if self._cluster.witness is not None and self._checked_version(key, expected) != ABSENT:
            self._cluster.witness.deleted(self, key)
        await super().delete(key, expected)

    def value_of(self, key: str) -> bytes | None:
        """Returns the value of this moment."""
        found = self._values.get(key)
        return None if found is None else found.value

    def session_of(self, key: str) -> Leader | None:
        """Returns the session that an ephemeral key ends with; None for another key, or none."""
        found = self._owners.get(key)
        assert found is None or isinstance(found, Leader)
        return found

    def _remove(self, key: str) -> None:
        super()._remove(key)
        self._cluster.changed(key, None)


class Cluster:
    def __init__(
        self,
        rng: random.Random,
        loop: SimLoop,
        *,
        lag_s: float = 0.05,
        lost: float = 0.0,
        notice_s: float = 0.0,
    ) -> None:
        """`lag_s`: after which a follower has a change at the latest. `lost`: probability per way of a request.
        `notice_s`: after which a watch has told at the latest."""
        self.rng, self.loop, self.lag_s, self.lost, self.notice_s = rng, loop, lag_s, lost, notice_s
        self.changed_s: list[float] = []
        """When each change of `log` was made."""
        self.witness: Witness | None = None
        self.log: list[tuple[str, Versioned | None]] = []
        self.first: Leader | None = None
        self.first = Leader(self)
        self.followers: list[FollowerStore] = []
        self.numbers_taken = 0
        """Numbers that the leader's sequence has given."""

    def changed(self, key: str, value: Versioned | None) -> None:
        self.log.append((key, value))
        self.changed_s.append(self.loop.time())
        for follower in self.followers:
            if not follower.has_left:
                self.loop.call_later(self.rng.uniform(0, self.lag_s), follower.catch_up, len(self.log))


class FollowerStore:
    """One session."""

    value_bytes_max = VALUE_BYTES_MAX
    is_shared = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session = self._known = Leader(cluster, self)
        """At the leader, and as the process has been told."""
        self._replica = MemoryMetadataStore()
        self._seen = 0
        self._closed = False
        self.has_left = False
        """True once its process is no more."""
        self._order = asyncio.Lock()
        self._frozen_until_s = self._cut_until_s = 0.0
        self._has_ended = False
        self._listeners: list[Callable[[SessionState], None]] = []
        cluster.followers.append(self)
        self.catch_up(len(cluster.log))

    def catch_up(self, count: int) -> None:
        """Applies the first `count` changes of the log, unless the leader cannot be reached."""
        while self._cluster.loop.time() >= self._frozen_until_s and self._seen < count:
            key, value = self._cluster.log[self._seen]
            self._seen += 1
            if value is None:
                self._replica._remove(key)
            else:
                self._replica._set(key, *value)

    async def _travel(self) -> None:
        rng = self._cluster.rng
        await asyncio.sleep(rng.uniform(0.0005, 0.02))
        while (left_s := self._cut_until_s - self._cluster.loop.time()) > 0:  # noqa: ASYNC110 - it may grow
            await asyncio.sleep(left_s)
        if rng.random() < self._cluster.lost:
            raise MetadataUnanswered("connection to the metadata store lost")

    async def _arrive_to_read(self) -> None:
        await self._travel()
        self.catch_up(self._cluster.rng.randint(self._seen, len(self._cluster.log)))

    async def get(self, key: str) -> Versioned | None:
        await self._arrive_to_read()
        found = await self._replica.get(key)
        await self._travel()
        return found

    async def children(self, key: str) -> list[str]:
        await self._arrive_to_read()
        found = await self._replica.children(key)
        await self._travel()
        return found

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        return await self._write(lambda: self._session.put(key, value, expected))

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        if not any(isinstance(put, Check) for put in puts):
            return await self._write(lambda: self._session.put_all(puts))
        return await self._write(self._in_session(lambda session: session.put_all(puts)))

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._write(self._in_session(lambda session: session.delete(key, expected)))

    def _in_session(self, write: Callable[[Leader], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Returns a write that is made in the session of this moment, or not at all."""
        session = self._known

        async def in_session() -> T:
            if self._session is not session or self._has_ended:
                raise MetadataUnanswered("the session in which this was asked has ended")
            return await write(session)

        return in_session

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        async with self._order:  # Writes of a session are carried out in the order of the calls.
            await self._travel()
            await self._until_thawed()
            while self._has_ended:  # noqa: ASYNC110 - the next session begins with the connection
                await asyncio.sleep(0.001)
            if self._closed:
                raise MetadataError("the metadata store is closed")
            try:
                outcome = await write()
            finally:
                # The follower answers when it has the write, or what refused it, and all before.
                self.catch_up(len(self._cluster.log))
        await self._travel()
        return outcome

    async def sync(self) -> None:
        await self._arrive_at_leader()
        await self._travel()

    async def _arrive_at_leader(self) -> None:
        await self._travel()
        await self._until_thawed()
        self.catch_up(len(self._cluster.log))

    async def take_numbers(self, count: Callable[[], int]) -> int:
        """Takes as many numbers of the leader's sequence as `count` says at its arrival; returns the first."""
        await self._arrive_at_leader()
        first = self._cluster.numbers_taken
        self._cluster.numbers_taken += count()
        await self._travel()
        return first

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        await self._travel()
        return await self._replica.watch(key, self._late(changed))

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        await self._travel()
        return await self._replica.watch_children(key, self._late(changed))

    def _late(self, changed: Callable[[], None]) -> Callable[[], None]:
        def tell() -> None:
            loop, notice_s = self._cluster.loop, self._cluster.notice_s
            # The end of a cut tells of everything.
            if loop.time() >= self._cut_until_s:
                loop.call_later(self._cluster.rng.uniform(0, notice_s), changed) if notice_s else changed()

        return tell

    async def _until_thawed(self) -> None:
        while (left_s := self._frozen_until_s - self._cluster.loop.time()) > 0:  # noqa: ASYNC110 - it may grow
            await asyncio.sleep(left_s)

    def freeze(self, seconds: float) -> None:
        """The follower loses its leader: it answers reads of before, and nothing else."""
        loop = self._cluster.loop
        self._frozen_until_s = max(self._frozen_until_s, loop.time() + seconds)
        loop.call_at(self._frozen_until_s, self._thaw)

    def _thaw(self) -> None:
        if self._is_over(self._frozen_until_s):
            self._frozen_until_s = 0.0
            self.catch_up(len(self._cluster.log))

    def cut(self, seconds: float, session_s: float, *, silently: bool = False) -> None:
        """The process loses its follower; after `session_s` the leader ends the session.

        `silently`: the process stands still and learns of it when it goes on.
        """
        loop = self._cluster.loop
        self._cut_until_s = max(self._cut_until_s, loop.time() + seconds)
        if not silently:
            self._tell(SessionState.SUSPENDED)
        if seconds > session_s:
            loop.call_later(session_s, self._end)
        loop.call_at(self._cut_until_s, self._reconnect)

    def _end(self) -> None:
        self._session._end_session()
        self._has_ended = True

    def end(self) -> None:
        """The leader ends the session of a process that is no more, and nothing is told to it."""
        self._session._end_session()
        # Kept in the list: the garbage collector would end tasks of the process in their middle.
        self.has_left = True

    def _reconnect(self) -> None:
        if not self._is_over(self._cut_until_s):
            return
        self._cut_until_s = 0.0
        self._replica._watches.tell_all()
        if self._has_ended:
            self._has_ended = False
            self._session = Leader(self._cluster, self)
            self._begin_anew()
        else:
            self._tell(SessionState.CONNECTED)

    def _is_over(self, until_s: float) -> bool:
        """Returns False where a later fault has made the time longer. A timer may be early by a rounding."""
        return self._cluster.loop.time() >= until_s - 1e-6

    def listen(self, told: Callable[[SessionState], None]) -> None:
        self._listeners.append(told)

    def expire(self) -> None:
        """The leader ends the session; its process learns of it later, and has a new one then."""
        # A process that is cut off has no new session before it reaches its follower again.
        if self._cluster.loop.time() < self._cut_until_s:
            self._end()
            return
        self._session._end_session()
        self._session = Leader(self._cluster, self)
        delay_s = self._cluster.rng.uniform(0, 0.5)
        self._cluster.loop.call_later(delay_s, self._replica._watches.tell_all)
        self._cluster.loop.call_later(delay_s, self._begin_anew)

    def _begin_anew(self) -> None:
        self._tell(SessionState.LOST)
        self._tell(SessionState.RE_ESTABLISHED)

    def _tell(self, state: SessionState) -> None:
        if state is SessionState.RE_ESTABLISHED:
            self._known = self._session
        if not self._closed:
            for told in self._listeners:
                told(state)

    async def close(self) -> None:
        await self._travel()
        self._closed = True
        await self._session.close()


class SequenceIds:
    """Ledger ids as ZooKeeper gives them: callers that come together share one request, and its loss."""

    def __init__(self, store: FollowerStore) -> None:
        self._store = store
        self._request: asyncio.Task[int] | None = None
        """The one that is under way to the leader."""
        self._sharing = 0
        """Callers that share it."""

    async def next(self, above: int = -1) -> int:
        while (ledger_id := await self._next()) <= above:
            pass
        return ledger_id

    def forget(self) -> None:
        """Has none ahead."""

    async def _next(self) -> int:
        if self._request is None:
            self._sharing = 0
            self._request = asyncio.ensure_future(self._store.take_numbers(self._leave))
            self._request.add_done_callback(self._done)
        request, place = self._request, self._sharing
        self._sharing += 1
        return await asyncio.shield(request) + place

    def _leave(self) -> int:
        """The request is at the leader: who comes now needs another one."""
        self._request = None
        return self._sharing

    def _done(self, request: asyncio.Task[int]) -> None:
        # Lost on its way to the leader.
        if self._request is request:
            self._request = None
