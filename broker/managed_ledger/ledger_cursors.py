"""LedgerCursors: the cursors of one managed ledger, by name: loading, opening, deleting.

A durable cursor is a node in the metadata store, and on a shared one a ledger (`CursorRecord`). A cursor in memory belongs
to a reader and is gone with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.metadata.metadata_store import ABSENT, Versioned
from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter, NoCursorInfo
from broker.managed_ledger.cursor_record import NO_LEDGER
from broker.managed_ledger.ledger_parts import LedgerParts
from broker.managed_ledger.managed_cursor import ManagedCursor, sought
from broker.managed_ledger.managed_ledger_info import (
    NO_NUMBERS,
    NO_PROPERTIES,
    CursorInfo,
    cursor_key,
    read_cursors,
)
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_position
from foundation.model.errors import BadVersion, MetadataError
from foundation.model.position import Position

THREAD_BYTES_MIN: Final = 20_000
"""Bytes of a stored cursor above which it is decoded in a thread: a packed page may be a few bytes, and takes 2 µs."""


class LedgerCursors:
    """Owns the cursors of one managed ledger."""

    __slots__ = ("_context", "_parts", "by_name")

    def __init__(self, parts: LedgerParts, by_name: dict[str, ManagedCursor]) -> None:
        """`by_name`: empty; this object alone changes it, and `Trimming` looks at it."""
        self.by_name = by_name
        """Durable ones and those in memory."""
        self._parts = parts
        self._context = parts.context

    async def load(self, nodes: Sequence[tuple[str, Versioned]] | None = None) -> None:
        """Opens all stored cursors; `nodes` has them where the caller knows them.

        Raises MetadataError, and PersistenceError for a cursor's ledger.
        """
        if nodes is None:
            nodes = await read_cursors(self._context.environment.metadata, self._context.name)
        for cursor_name, found in nodes:
            if len(found.value) > THREAD_BYTES_MIN:
                info, acks, ledger_id = await asyncio.to_thread(self._restored, found.value)
            else:
                info, acks, ledger_id = self._restored(found.value)
            if ledger_id != NO_LEDGER:
                info = await self._position_in(ledger_id, info)
            if await self._reserved_after(info.mark_delete) or ledger_id != NO_LEDGER:
                acks = Acks.restore(self._context.ledgers, info)
            if ledger_id == NO_LEDGER:
                self._add_durable(cursor_name, info, acks, found.version)
                continue
            cursor = self._add_durable(cursor_name, info, acks, found.version, ledger_id)
            if not self._context.environment.metadata.is_shared:
                # An Apache broker left the position there; on this store the node has it.
                cursor.store.changed()
                await cursor.store.flush()
                await cursor.store.settle()

    async def _reserved_after(self, position: Position) -> bool:
        """Reserves another id for the current ledger where it is below that of the position. Raises MetadataError.

        Another broker was the owner while this opening waited: its cursors stand at the id that it had reserved, and entries
        that come now would count as acknowledged.
        """
        context, ledgers = self._context, self._context.ledgers
        if ledgers is not context.store.ledgers or ledgers.current.entries:
            return False  # The list of a shadow's source, or a terminated topic: nothing is reserved here.
        if position.ledger_id <= ledgers.current.ledger_id:
            return False
        ledgers.reserve(await context.environment.ids.next(above=position.ledger_id))
        context.last_confirmed = ledgers.last()
        return True

    def _restored(self, value: bytes) -> tuple[CursorInfo, Acks, int]:
        """Decodes a stored cursor. Safe in a thread, because no entry is added while cursors are loaded."""
        stored = decode_cursor(value)
        return stored.info, Acks.restore(self._context.ledgers, stored.info), stored.ledger_id

    async def _position_in(self, ledger_id: int, in_node: CursorInfo) -> CursorInfo:
        """Returns the last position in a cursor's ledger, which its writer can no longer add to.

        That of the node where the ledger has no entry or does not exist. Raises MetadataError and PersistenceError.
        """
        environment, settings = self._context.environment, self._context.settings
        metadata = await environment.ledgers.recover(ledger_id, keeps_damaged=settings.skips_lost)
        if metadata is None or metadata.last_entry_id < 0:
            return in_node
        last = metadata.last_entry_id
        (entry,) = await read_entries(environment.ledgers, ledger_id, last, last, settings.read_bytes_max)
        stored = b"".join((entry.header, entry.body))
        if len(stored) > THREAD_BYTES_MIN:
            info, has_texts = await asyncio.to_thread(decode_position, stored)
        else:
            info, has_texts = decode_position(stored)
        if not has_texts:
            info.cursor_properties = in_node.cursor_properties
        return info

    async def open(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, int] = NO_NUMBERS,
        cursor_properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> ManagedCursor:
        """Returns the durable cursor of that name, made if there is none.

        A new one reads on from `initial` (EARLIEST and LATEST allowed), has both kinds of properties, and is durable
        when this returns. Raises MetadataError; a new cursor then does not exist.
        """
        cursor = self.by_name.get(name)
        if cursor is None:
            ledgers = self._context.ledgers
            start = ledgers.at_or_after(initial)
            info = CursorInfo(ledgers.previous(start), properties, cursor_properties=cursor_properties)
            cursor = self._add_durable(name, info, Acks.restore(ledgers, info), ABSENT)
            cursor.sought = sought(initial, cursor.acks)
            cursor.store.changed()
        try:
            # Also for a cursor that was found: another `open` may be storing it at this moment.
            await cursor.store.flush()
        except MetadataError as error:
            # A cursor that was never stored must not look as if it could keep acknowledgements.
            if self.by_name.get(name) is cursor and not cursor.store.stored:
                cursor.abandon()
                self._forget(name)
                if (
                    isinstance(error, BadVersion)
                    and (found := await self._left_by_lost_answer(name)) is not None
                ):
                    return found
            raise
        return cursor

    async def _left_by_lost_answer(self, name: str) -> ManagedCursor | None:
        """Opens a node as its creation leaves it, which an earlier attempt here has made; None for another one."""
        metadata = self._context.environment.metadata
        found = await metadata.get(cursor_key(self._context.name, name))
        if found is None or name in self.by_name:
            return None
        info, acks, ledger_id = self._restored(found.value)
        # Its ledger would be that of another broker, which must not be fenced for this; so would the ledger of its position,
        # which this broker has not reserved.
        reserved = self._context.ledgers.current.ledger_id
        if found.version or ledger_id != NO_LEDGER or info.mark_delete.ledger_id > reserved:
            return None
        return self._add_durable(name, info, acks, found.version)

    def _add_durable(
        self, name: str, info: CursorInfo, acks: Acks, version: int, ledger_id: int = NO_LEDGER
    ) -> ManagedCursor:
        writer = CursorInfoWriter(self._context, name, acks, version, info.cursor_properties, ledger_id)
        cursor = self.by_name[name] = ManagedCursor(name, self._parts, acks, writer)
        return cursor

    def open_non_durable(
        self, name: str, start: Position, cursor_properties: Mapping[str, str] = NO_PROPERTIES
    ) -> ManagedCursor:
        """Makes a cursor in memory that reads on from `start`, EARLIEST and LATEST allowed."""
        assert name not in self.by_name, f"{self._context.name} has a cursor {name}"
        ledgers = self._context.ledgers
        first = ledgers.at_or_after(start)
        acks = Acks(ledgers, ledgers.previous(first))
        cursor = self.by_name[name] = ManagedCursor(name, self._parts, acks, NoCursorInfo(cursor_properties))
        cursor.sought = sought(start, acks)
        return cursor

    async def delete(self, name: str) -> None:
        """Removes the cursor if it exists. Raises MetadataError."""
        cursor = self.by_name.get(name)
        if cursor is None:
            return
        # First, so that nothing is stored or read for it while this waits for the metadata store.
        cursor.abandon()
        await cursor.store.delete()
        self._parts.reading_cursors.forget(cursor)
        self._context.forget_reader(cursor.reader)
        self._forget(name)
        self._parts.trimming.trim(self._context.environment.wall_ms())

    def drop_non_durable(self, cursor: ManagedCursor) -> None:
        """Forgets a cursor in memory: its reader will not return."""
        assert not cursor.durable
        cursor.abandon()
        self._parts.reading_cursors.forget(cursor)
        if self.by_name.get(cursor.name) is cursor:
            self._context.forget_reader(cursor.reader)
            self._forget(cursor.name)

    def check_backlogs(self) -> None:
        """Applies the older rules for backlogs; to be called once a minute."""
        self._parts.reading_cursors.check_backlogs(self.by_name.values(), self._context.settings)

    async def close(self) -> list[BaseException | None]:
        """Closes every cursor; returns an error or None for each."""
        cursors = list(self.by_name.values())
        for cursor in cursors:
            if not cursor.durable:
                self._forget(cursor.name)
        return await asyncio.gather(*(cursor.close() for cursor in cursors), return_exceptions=True)

    def abandon(self) -> None:
        """Forgets all cursors without storing anything: the managed ledger is being deleted."""
        for cursor in list(self.by_name.values()):
            cursor.abandon()
        self.by_name.clear()

    def _forget(self, name: str) -> None:
        self.by_name.pop(name, None)
