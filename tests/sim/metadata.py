"""The metadata store of the simulation: one state for all clients, each answer late, some lost; and a witness.

The witness sees every version of a ledger's metadata and what may not happen between two of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import VALUE_BYTES_MAX, Check, Versioned, Write
from foundation.model.errors import MetadataError
from protocol.ledger_metadata import LedgerMetadata, LedgerState, decode, ledger_key
from tests.fakes.metadata import Unwatched
from tests.sim.network import Client

LEDGER, OTHER_LEDGER = 7, 8


class Broken(AssertionError):
    """An invariant does not hold."""


class SharedState:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.store = MemoryMetadataStore()
        self.sessions: list[tuple[Client, MemoryMetadataStore]] = []
        self.error_rate = 0.0
        self.slow_rate = 0.0
        self.history: list[LedgerMetadata] = []
        self.deleted = False
        """True after the ledger was deleted; it must not be created again."""
        self.others: dict[str, LedgerMetadata] = {}
        """Further ledgers, by key, as last written."""
        self.may_move = False
        """True while re-replication is at work."""
        self.moves = 0
        """Changes of the members of a closed fragment."""

    async def end_crashed(self) -> None:
        """Ends the sessions of clients that crashed, without a delay."""
        for client, session in self.sessions if self.store._owners else ():
            if client.crashed:
                await session.close()

    def written(self, key: str, value: bytes) -> None:
        """Judges a write of a ledger's metadata; other keys may hold anything."""
        if key == ledger_key(LEDGER):
            self.witness(value)
        elif key == ledger_key(OTHER_LEDGER):
            new = decode(value)
            if key in self.others:
                self._check(self.others[key], new)
            self.others[key] = new

    def removed(self, key: str) -> None:
        """Judges the removal of a key."""
        if key == ledger_key(LEDGER):
            self.deleted = True

    def _check(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        if self.may_move and is_move(old, new):
            self.moves += 1
        else:
            check_step(old, new)

    def witness(self, value: bytes) -> None:
        new = decode(value)
        if self.deleted:
            raise Broken(f"a deleted ledger is there again: {new}")
        if self.history:
            self._check(self.history[-1], new)
        self.history.append(new)


def is_move(old: LedgerMetadata, new: LedgerMetadata) -> bool:
    """True for other members in exactly one closed fragment: the only change that re-replication makes."""
    if replace(new, segments=old.segments) != old or len(new.segments) != len(old.segments):
        return False
    changed = [
        place for place, pair in enumerate(zip(old.segments, new.segments, strict=True)) if len(set(pair)) > 1
    ]
    if len(changed) != 1 or (old.state is not LedgerState.CLOSED and changed[0] == len(old.segments) - 1):
        return False
    before, after = old.segments[changed[0]], new.segments[changed[0]]
    return before.first_entry_id == after.first_entry_id and len(set(after.members)) == len(
        before.members
    ) == len(after.members)


def check_step(old: LedgerMetadata, new: LedgerMetadata) -> None:
    """Raises Broken for a change that no writer and no recovery makes."""
    if old.state is LedgerState.CLOSED:
        raise Broken(f"a closed ledger was changed: {old} -> {new}")
    if new.state < old.state:
        raise Broken(f"a ledger went back from {old.state.name} to {new.state.name}")
    if new.state is LedgerState.IN_RECOVERY and new != replace(old, state=new.state):
        raise Broken(f"a take-over, or somebody after it, changed more than the state: {old} -> {new}")
    if old.state is new.state is LedgerState.IN_RECOVERY:
        raise Broken("a ledger was taken over twice without being closed")
    if replace(new, segments=old.segments, state=old.state, last_entry_id=-1, length=0) != old:
        raise Broken(f"what never changes was changed: {old} -> {new}")
    starts = [segment.first_entry_id for segment in new.segments]
    if starts != sorted(set(starts)) or starts[0] != 0:
        raise Broken(f"segments begin at {starts}")
    if new.segments[: len(old.segments) - 1] != old.segments[:-1]:
        raise Broken(f"an earlier segment was changed: {old.segments} -> {new.segments}")
    if any(len(set(segment.members)) != new.ensemble_size for segment in new.segments):
        raise Broken(f"an ensemble has a bookie twice, or not {new.ensemble_size}: {new.segments}")


class SimMetadataStore(Unwatched):
    """One client's view."""

    value_bytes_max = VALUE_BYTES_MAX

    def __init__(self, state: SharedState, client: Client) -> None:
        self._state = state
        self._client = client
        self._session = state.store.another()
        state.sessions.append((client, self._session))

    async def get(self, key: str) -> Versioned | None:
        await self._travel()
        found = await self._state.store.get(key)
        await self._travel()
        return found

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await self._travel()
        version = await self._state.store.put(key, value, expected)
        self._state.written(key, value)
        await self._travel()
        return version

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        await self._travel()
        versions = await self._session.put_all(puts)
        for put in puts:
            if not isinstance(put, Check):
                self._state.written(put.key, put.value)
        await self._travel()
        return versions

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._travel()
        await self._state.store.delete(key, expected)
        self._state.removed(key)
        await self._travel()

    async def children(self, key: str) -> list[str]:
        await self._travel()
        found = await self._state.store.children(key)
        await self._travel()
        return found

    async def close(self) -> None:
        await self._session.close()

    async def _travel(self) -> None:
        """There or back: late, or lost, which the caller cannot tell apart from the other way being lost."""
        rng = self._state.rng
        slow = rng.random() < self._state.slow_rate
        await asyncio.sleep(rng.uniform(0.1, 2.0) if slow else rng.uniform(0.0005, 0.005))
        await self._state.end_crashed()
        if self._client.crashed:
            await asyncio.get_running_loop().create_future()
        if rng.random() < self._state.error_rate:
            raise MetadataError("connection to the metadata store lost")
