"""Marks: the ledgers that lack copies, and the switches of re-replication, in the metadata store.

The nodes are BookKeeper's (`protocol.underreplication`), so its auditors and workers and ours serve one cluster together.
Any metadata store will do. Locks and votes must end with their owner's session; they have interfaces of their own here, and
ZooKeeper's are in `zookeeper_locks`.

The law: a mark is removed only in the version that a worker has read under the ledger's lock. An auditor that finds
another loss meanwhile changes the mark, and the removal fails.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore
from foundation.model.errors import BadVersion, MetadataError
from protocol.underreplication import (
    CHECKED,
    DELAY,
    DISABLED,
    FOLDER,
    LAYOUT,
    MARKS,
    Mark,
    check_layout,
    decode_checked,
    decode_mark,
    encode_checked,
    encode_layout,
    encode_mark,
    mark_key,
    marked_ledger,
    with_replicas,
)

log = logging.getLogger(__name__)

_LEVELS = 4
_FOLDER_VALUE = b"marks\n"


class BadMark(MetadataError):
    """The value of a mark cannot be read; its ledger counts as marked."""


class Marked(NamedTuple):
    """A ledger that lacks copies."""

    ledger_id: int
    """The ledger."""
    mark: Mark
    """Its mark."""
    version: int
    """Of the mark's node; `Marks.remove` compares it."""


class Lock(Protocol):
    """A ledger's lock that this process has; in ZooKeeper, or in the memory of a test or simulation."""

    async def is_held(self) -> bool:
        """Returns True when no other process can have had the lock since it was taken. Raises MetadataError."""
        ...

    async def release(self) -> None:
        """Lets other workers take the ledger. Raises MetadataError."""
        ...


class Locks(Protocol):
    """Locks of ledgers; each ends with its owner."""

    async def take(self, ledger_id: int) -> Lock | None:
        """Returns the lock, None when another process has it. Raises MetadataError."""
        ...


class Election(Protocol):
    """The choice of one auditor among all processes; in ZooKeeper, or in a test that decides it."""

    async def is_elected(self) -> bool:
        """Stands for election if needed; returns True while this process is the auditor. Raises MetadataError."""
        ...

    async def resign(self) -> None:
        """Gives up the place, or the wait for it. Raises MetadataError."""
        ...


class Marks:
    """The marks of one cluster."""

    def __init__(self, store: MetadataStore) -> None:
        """`prepare` is to be called before the first use."""
        self._store = store

    async def prepare(self, delay_s: int | None = None) -> None:
        """Makes the nodes that both sides expect; the delay only where there is none yet.

        Raises MetadataError, also for a layout of another kind.
        """
        found = await self._store.get(LAYOUT)
        if found is None:
            try:
                await self._store.put(LAYOUT, encode_layout(), ABSENT)
            except BadVersion:
                found = await self._store.get(LAYOUT)
        if found is not None:
            try:
                check_layout(found.value)
            except ValueError as error:
                raise MetadataError(
                    f"{LAYOUT}: {error}; another program keeps its own nodes there"
                ) from error
        # A folder without bytes would be removed with its last mark, and BookKeeper's workers, which watch it, expect it
        # to stay. Its value means nothing to anyone.
        if await self._store.get(MARKS) is None:
            await self._store.put(MARKS, _FOLDER_VALUE)
        if delay_s is not None and await self._store.get(DELAY) is None:
            await self._store.put(DELAY, str(delay_s).encode())

    # Marks

    async def add(self, ledger_id: int, replicas: Sequence[str], now_ms: int) -> bool:
        """Marks a ledger that lacks the copies of these bookies; returns False if the mark said so before.

        Raises MetadataError; BadMark for a mark that cannot be read.
        """
        key = mark_key(ledger_id)
        while True:
            found = await self._store.get(key)
            before = Mark(()) if found is None else _decoded(key, found.value)
            mark = with_replicas(before, replicas)
            if found is not None and mark is before:
                return False
            try:
                value = encode_mark(mark._replace(marked_ms=now_ms))
                await self._store.put(key, value, ABSENT if found is None else found.version)
            except BadVersion:
                continue  # Another auditor, or a worker that has finished in between.
            return True

    async def get(self, ledger_id: int) -> Marked | None:
        """Returns a ledger's mark, None without one. Raises MetadataError."""
        key = mark_key(ledger_id)
        found = await self._store.get(key)
        return None if found is None else Marked(ledger_id, _decoded(key, found.value), found.version)

    async def ledgers(self) -> AsyncIterator[int]:
        """Yields the marked ledgers, a folder at a time. Raises MetadataError."""
        folders = [MARKS]
        for _ in range(_LEVELS):
            folders = [
                f"{parent}/{name}" for parent in folders for name in await self._store.children(parent)
            ]
        for folder in folders:
            for name in await self._store.children(folder):
                ledger_id = marked_ledger(name)
                if ledger_id is not None:
                    yield ledger_id

    async def remove(self, marked: Marked) -> bool:
        """Removes the mark in the version that was read; returns False when it has changed. Raises MetadataError."""
        try:
            await self._store.delete(mark_key(marked.ledger_id), marked.version)
        except BadVersion:
            return False
        return True

    # Switches

    async def enabled(self) -> bool:
        """Returns True unless re-replication was switched off. Raises MetadataError."""
        # The name and not the value: BookKeeper writes the node without bytes, which a metadata store takes for absent.
        return DISABLED.rpartition("/")[2] not in await self._store.children(FOLDER)

    async def set_enabled(self, enabled: bool) -> None:
        """Switches re-replication on or off for the whole cluster. Raises MetadataError."""
        if enabled:
            await self._store.delete(DISABLED)
        else:
            await self._store.put(DISABLED, b"by magnetar\n")

    async def delay_s(self, default: int) -> int:
        """Returns the seconds that the auditor waits for a lost bookie. Raises MetadataError."""
        found = await self._store.get(DELAY)
        try:
            return default if found is None else int(found.value)
        except ValueError:
            log.warning("%s is %r, which is no number of seconds; %d is taken", DELAY, found, default)
            return default

    async def set_delay_s(self, delay_s: int) -> None:
        """Stores the delay for all auditors. Raises MetadataError."""
        await self._store.put(DELAY, str(delay_s).encode())

    async def delay_version(self) -> int:
        """Returns the version of the delay's node; a write of it asks the auditor for an audit. Raises MetadataError."""
        found = await self._store.get(DELAY)
        return -1 if found is None else found.version

    async def checked_ms(self) -> int | None:
        """Returns the time at which all ledgers were checked last, None for never. Raises MetadataError."""
        found = await self._store.get(CHECKED)
        try:
            return None if found is None else decode_checked(found.value)
        except ValueError:
            return None

    async def note_checked(self, now_ms: int) -> None:
        """Stores that all ledgers were checked. Raises MetadataError."""
        await self._store.put(CHECKED, encode_checked(now_ms))


def _decoded(key: str, value: bytes) -> Mark:
    try:
        return decode_mark(value)
    except ValueError as error:
        raise BadMark(
            f"{key}: {error}; remove the node, and the next check marks the ledger again"
        ) from error
