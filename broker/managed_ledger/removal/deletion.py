"""Deletes managed ledgers that are not open, in steps that can be repeated after a crash.

    decide_deletion          one write: the list says "deleted" and names every ledger to remove, so no broker can use it
    delete_managed_ledger    cursors and ledgers first, the list last

While the list exists it names each ledger that may exist, because a ledger begins in one write with the list
(`LedgerListStore`). So a deletion that was interrupted anywhere is finished by doing all of it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NoReturn

from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import MetadataStore, Put, Write
from broker.managed_ledger.ledger_list import LedgerInfo, OffloadedLedger
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list, encode_ledger_list
from foundation.model.errors import BadVersion, MetadataError, PersistenceError

if TYPE_CHECKING:
    from broker.managed_ledger.offload.tier import OpenTier

log = logging.getLogger(__name__)

REMOVED_AT_ONCE: Final = 50
"""Cursors and ledgers that are deleted at the same time. Each takes the loop for 0.1 ms."""


async def decide_deletion(name: str, metadata: MetadataStore, beside: Sequence[Write] = ()) -> bool:
    """Marks the stored list as deleted, together with the writes in `beside`; returns False when there is no list.

    From then on no broker can add a ledger or an entry in a new one. Raises MetadataError: BadVersion also when a key in
    `beside` has another version.
    """
    key = managed_ledger_key(name)
    while (found := await metadata.get(key)) is not None:
        info = decode_ledger_list(found.value)
        marked = ManagedLedgerInfo(
            [],
            deleting=ledgers_of(info),
            deleted=True,
            created_ms=info.created_ms,
            deleting_objects=objects_of(info),
        )
        try:
            await metadata.put_all((Put(key, encode_ledger_list(marked), found.version), *beside))
        except BadVersion:
            # A write of the list was still under way, or another broker has the managed ledger: decide on what is there.
            if await metadata.get(key) == found:
                raise
        else:
            return True
    return False


async def delete_managed_ledger(
    name: str, metadata: MetadataStore, ledgers: Ledgers, open_tier: OpenTier
) -> None:
    """Deletes cursors, ledgers, their copies in other storage, and the list, or what is left of them.

    Raises MetadataError, and PersistenceError when an embedded bookie cannot write; it must then be called again.
    """
    key = managed_ledger_key(name)
    while True:
        found = await metadata.get(key)
        info = ManagedLedgerInfo() if found is None else decode_ledger_list(found.value)
        cursors = await metadata.children(key)
        await together(
            chain(
                (_delete_cursor(f"{key}/{cursor}", metadata, ledgers) for cursor in cursors),
                (ledgers.delete(ledger_id) for ledger_id in ledgers_of(info)),
            )
        )
        if copies := objects_of(info):
            await delete_objects(open_tier, name, copies)
        if found is None:
            return
        try:
            await metadata.delete(key, found.version)
        except BadVersion:
            continue  # Another broker has written the list meanwhile; it may name a new ledger.
        return


async def _delete_cursor(key: str, metadata: MetadataStore, ledgers: Ledgers) -> None:
    while (found := await metadata.get(key)) is not None:
        try:
            ledger_id = decode_cursor(found.value).ledger_id
        except MetadataError as error:
            # A damaged cursor must not keep its topic from being deleted.
            log.warning("! %s is deleted, though it cannot be read: %s", key, error)
            ledger_id = -1
        if ledger_id >= 0:
            # First, because the node alone names this ledger.
            await ledgers.delete(ledger_id)
        try:
            await metadata.delete(key, found.version)
        except BadVersion:
            continue  # A write was still under way; it may name a new ledger.
        return


def ledgers_of(info: ManagedLedgerInfo) -> list[int]:
    """Returns the id of every ledger that the list names."""
    listed = (ledger.ledger_id for ledger in _own_ledgers(info))
    return [*listed, *info.deleting, *info.delayed, *info.beside]


def _own_ledgers(info: ManagedLedgerInfo) -> Sequence[LedgerInfo]:
    # Apache's broker lists the source's ledgers in the node of a shadow topic; they are the source's.
    return () if SHADOW_SOURCE in info.properties else info.ledgers


def objects_of(info: ManagedLedgerInfo) -> list[OffloadedLedger]:
    """Returns every copy in other storage that the list names, those that were begun alone too."""
    return [*info.deleting_objects, *copies_of(_own_ledgers(info))]


def copies_of(ledgers: Iterable[LedgerInfo]) -> list[OffloadedLedger]:
    """Returns the copies of these ledgers in other storage."""
    return [
        OffloadedLedger(one.ledger_id, one.offload.uuid, one.offload.place)
        for one in ledgers
        if one.offload is not None
    ]


async def delete_objects(open_tier: OpenTier, topic: str, copies: Sequence[OffloadedLedger]) -> None:
    """Deletes copies of ledgers in other storage. Raises BrokerError; it must then be called again."""
    tier = open_tier()
    await together(tier.delete(topic, one) for one in copies)


async def together(writes: Iterable[Coroutine[object, object, None]]) -> None:
    """Runs the writes in slices. Raises the first error, after every write has ended.

    Takes each slice from `writes` when it begins: a cancelled caller leaves no coroutine that was made and never begun.
    """
    error: BaseException | None = None
    rest = iter(writes)
    while begun := list(islice(rest, REMOVED_AT_ONCE)):
        # All end before an error is raised: an unfinished write could come after the next attempt.
        for outcome in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(outcome, BaseException):
                error = error or outcome
    if error is not None:
        raise error


def no_tier() -> NoReturn:
    """The OpenTier of a program without tiers. Raises PersistenceError."""
    raise PersistenceError("a copy of a ledger is in other storage, which this program does not read")
