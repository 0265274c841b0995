"""Creates and deletes topics of one kind on a metadata store on disk, and compares the store with the one before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import NamedTuple, TypeVar

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from tests.deletion.kinds import KINDS, delete, dump, topic, with_namespace
from tests.fakes.stage import Stage

T = TypeVar("T")
BARRIER = "/test/barrier"
"""A key that is written to wait for the writes before it."""
PER_NAMESPACE = 200
"""Topics of one namespace: each has a grant there, and a namespace's grants are one value."""
TOGETHER = 50
"""Topics that are made or deleted at once, so that their writes share syncs."""


class StageOnDisk(Stage):
    """A stage whose metadata store answers from a thread."""

    def __init__(self, store: SqliteMetadataStore) -> None:
        super().__init__(entries_per_ledger=3, bucket_entries=4, metadata=store)
        self.store = store
        self._awaited = 0
        """Calls of `run` that wait."""
        self._turning: asyncio.Task[None] | None = None

    async def run(self, work: Coroutine[object, object, T] | asyncio.Future[T]) -> T:
        """Waits for the work while one task turns the loop for all calls.

        With a task for each of fifty calls the loop kept the interpreter so busy that the store's thread came to nothing.
        """
        self._awaited += 1
        if self._turning is None:
            self._turning = asyncio.create_task(self._turn())
        try:
            return await work
        finally:
            self._awaited -= 1

    async def _turn(self) -> None:
        while self._awaited:
            while self.soon:
                self.soon.popleft()()
            await asyncio.sleep(0.0002)
        self._turning = None

    async def settle(self) -> None:
        """Runs everything that was asked for, also behind writes: the store carries these out in order."""
        for _ in range(2):
            await super().settle()
            await self.store.put(BARRIER, b"")
        await super().settle()


class Compared(NamedTuple):
    """The outcome for one kind."""

    keys_before: int
    """Keys in the store before the first topic was made."""
    keys_between: int
    """Keys while all topics were there."""
    keys_after: int
    """Keys in the file after the last deletion."""
    seconds: float
    """For all creations and deletions."""
    differences: list[str]
    """Keys that were added, removed or changed, and ledgers that are left; empty is right."""


async def compare(kind: str, count: int, path: Path) -> Compared:
    """Makes `count` topics with all that belongs to them, deletes them, and compares the file at `path`."""
    store = SqliteMetadataStore(path)
    stage = StageOnDisk(store)
    await stage.namespaces.open()
    await stage.deletions.open()
    await with_namespace(stage)
    namespaces = [f"shop/n{number}" for number in range(-(-count // PER_NAMESPACE))]
    for namespace in namespaces:
        await stage.namespaces.create(namespace, {"bundles": {"numBundles": 4}})
    await store.put(BARRIER, b"")
    before = await dump(store)
    began = time.monotonic()
    domain, make = KINDS[kind]
    names = [topic(f"{kind} é {index}", domain, namespaces[index // PER_NAMESPACE]) for index in range(count)]
    for start in range(0, count, TOGETHER):
        await asyncio.gather(*(make(stage, name) for name in names[start : start + TOGETHER]))
    between = len(await dump(store))
    assert between >= len(before) + 2 * count, "the topics were made"
    for start in range(0, count, TOGETHER):
        await asyncio.gather(*(delete(stage, name) for name in names[start : start + TOGETHER]))
    await stage.settle()
    seconds = time.monotonic() - began
    differences = differing(before, await dump(store))
    await stage.run(stage.deletions.close())
    await stage.run(stage.registry.close())
    await store.close()
    again = SqliteMetadataStore(path)
    after = await dump(again)
    differences += differing(before, after)
    await again.close()
    differences += [f"ledger {ledger_id}" for ledger_id in stage.ledgers._ledgers]
    return Compared(len(before), between, len(after), seconds, differences)


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Returns the keys that only one of both has, or that have another value."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
