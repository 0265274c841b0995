"""Opening a managed ledger: from the stored list to a list of BookKeeper ledgers whose ends are known.

A new managed ledger costs one write, one that was closed costs none. After a crash the ledger that was being written
is recovered (which fences its former writer) and closed. No ledger is begun here: an id is reserved, and the first
add stores it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.metadata.metadata_store import ABSENT, Lease, Versioned
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.managed_ledger_info import (
    NO_PROPERTIES,
    SHADOW_SOURCE,
    ManagedLedgerInfo,
    ledger_list_of,
    managed_ledger_key,
)
from broker.managed_ledger.records.pulsar_records import decode_ledger_list, encode_ledger_list
from broker.managed_ledger.removal.deletion import delete_managed_ledger
from broker.managed_ledger.settings import ManagedLedgerSettings
from foundation.model.errors import BrokerError, EntryDamaged, MetadataError, NoSuchEntry, PersistenceError
from protocol import broker_entry_metadata
from protocol.broker_entry_metadata import EntryMetadata, EntryStamp

if TYPE_CHECKING:
    from bookkeeper.metadata.new_nodes import PutNew

log = logging.getLogger(__name__)

INDEX = "index"
"""The property that keeps the number of the last message while the managed ledger is closed (PIP-70)."""
TIMESTAMP = "brokerTimestamp"
"""The property that keeps the broker timestamp of the last entry, in ms, while the managed ledger is closed."""
_OF_NEW: Final[Mapping[str, str]] = MappingProxyType({INDEX: "-1"})
"""The properties of every managed ledger that has never had an entry."""


async def open_ledger_list(
    name: str,
    environment: ManagedLedgerEnvironment,
    settings: ManagedLedgerSettings,
    stamp: EntryStamp,
    known: Versioned | None = None,
    lease: Lease | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
    reserved: int = -1,
) -> LedgerListStore:
    """Loads the list, finishes interrupted work, and lets `stamp` go on after the last entry.

    `known`: the stored list. `lease`: the condition for fencing, and for the first write of the list. `properties`: of a
    new one. `reserved`: an unused ledger id, -1 = none. Raises MetadataError, PersistenceError; it may be tried again then.
    """
    found = known or await environment.metadata.get(managed_ledger_key(name))
    info, version = (
        (decode_ledger_list(found.value), found.version) if found else (_new(environment, properties), ABSENT)
    )
    # Apache's broker names the source of a shadow's partition in the metadata of its partitioned topic alone.
    info.properties.update(properties)
    if SHADOW_SOURCE in info.properties:
        # Apache's broker copies the source's list into that of the shadow. They are not this log's to recover.
        info.ledgers, info.terminated = [], None
    if info.deleted:
        await delete_managed_ledger(name, environment.metadata, environment.ledgers, environment.open_tier)
        info, version = _new(environment, properties), ABSENT
    stamp.index = int(info.properties.setdefault(INDEX, "-1"))
    stamp.resume(int(info.properties.get(TIMESTAMP, "-1")))
    ends: list[LedgerInfo] = []
    emptied: list[int] = []
    left_open = False
    for ledger in info.ledgers:
        if ledger.closed_at_ms is None:
            left_open = True
            await _find_end(name, ledger, environment, settings, stamp, lease)
            info.properties.update(last_of(stamp))
        # Nothing can ever be read from a closed ledger without entries, so it leaves the list.
        if ledger.entries:
            ends.append(ledger)
        else:
            emptied.append(ledger.ledger_id)
    if stamp.has_timestamps and ends and TIMESTAMP not in info.properties:
        await _resume_after(ends[-1], environment, settings, stamp)
    # Positions must grow with time, so a new ledger's id must exceed every id that was ever in the list.
    highest = max([ledger.ledger_id for ledger in info.ledgers] + info.deleting, default=-1)
    current_id = reserved if reserved > highest else await environment.ids.next(above=highest)
    ledgers = ledger_list_of(info, ends, current_id)
    metadata, client, compression = environment.metadata, environment.ledgers, settings.list_compression
    store = LedgerListStore(name, metadata, client, ledgers, info, version, compression)
    if info.properties == _OF_NEW:
        store.properties = _OF_NEW
    store.affinity, store.lease, store.open_tier = settings.affinity, lease, environment.open_tier
    if emptied or store.has_marked:
        store.mark_deleting(emptied)
        await _finish_removals(store)
    # Also when nothing was removed: this write makes late writes of another broker fail (take-over rules).
    elif version == ABSENT or left_open:
        await store.save()
    return store


async def _finish_removals(store: LedgerListStore) -> None:
    """Deletes what an earlier broker marked. A storage of copies that is away does not keep the topic from opening."""
    try:
        await store.delete_marked()
    except MetadataError:
        raise
    except PersistenceError as error:
        if not store.has_marked_objects:
            raise
        log.warning("! copies of deleted ledgers stay in their storage for now: %s", error)


async def create_ledger_list(
    name: str,
    environment: ManagedLedgerEnvironment,
    settings: ManagedLedgerSettings,
    properties: Mapping[str, str] = NO_PROPERTIES,
    put: PutNew | None = None,
) -> tuple[ManagedLedgerInfo, Versioned]:
    """Stores a new managed ledger without opening it, by `put` if given.

    Raises MetadataError; BadVersion for one that exists.
    """
    info = _new(environment, properties)
    value = encode_ledger_list(info, settings.list_compression)
    key = managed_ledger_key(name)
    version = await (environment.metadata.put(key, value, ABSENT) if put is None else put(key, value))
    return info, Versioned(value, version)


def _new(environment: ManagedLedgerEnvironment, properties: Mapping[str, str]) -> ManagedLedgerInfo:
    # A record without any field has no bytes, and ZooKeeper's nodes without bytes count as absent.
    return ManagedLedgerInfo(properties={**_OF_NEW, **properties}, created_ms=environment.wall_ms())


def last_of(stamp: EntryStamp) -> dict[str, str]:
    """Returns the properties that the next open needs to go on after the last entry."""
    found = {INDEX: str(stamp.index)}
    if stamp.last_ms >= 0:
        found[TIMESTAMP] = str(stamp.last_ms)
    return found


async def _find_end(
    name: str,
    ledger: LedgerInfo,
    environment: ManagedLedgerEnvironment,
    settings: ManagedLedgerSettings,
    stamp: EntryStamp,
    lease: Lease | None,
) -> None:
    """Recovers the ledger unless it is closed, and fills in its end; lets `stamp` go on after its last entry."""
    try:
        metadata = await environment.ledgers.recover(
            ledger.ledger_id, keeps_damaged=settings.skips_lost, lease=lease
        )
    except PersistenceError as error:
        # Clients hear only that the topic is not there yet, so this line alone tells an operator of a damaged file.
        log.error(
            "! cannot open %s: the end of its ledger %d: %s. Bring a damaged file back, or set"
            " autoSkipNonRecoverableData=true",
            *(name, ledger.ledger_id, error),
        )
        raise
    if metadata is None:  # List and ledger begin in one write, so the ledger was deleted since.
        log.warning("%s names ledger %d, which the metadata store does not have", name, ledger.ledger_id)
    else:
        # The bookie may have entries past this end; none of them was ever confirmed.
        ledger.entries = metadata.last_entry_id + 1
        ledger.size_bytes = metadata.length
        last = await _last_metadata(name, ledger, environment, settings)
        if last.index is not None:
            stamp.index = last.index
        if last.broker_timestamp_ms is not None:
            stamp.resume(last.broker_timestamp_ms)
    # Retention counts from here: when the former writer stopped is not known.
    ledger.closed_at_ms = environment.wall_ms()


async def _resume_after(
    ledger: LedgerInfo,
    environment: ManagedLedgerEnvironment,
    settings: ManagedLedgerSettings,
    stamp: EntryStamp,
) -> None:
    """Lets `stamp` go on after a closed ledger of a list without a time: an older version wrote it."""
    at = ledger.entries - 1
    # A closed topic opens without its bookies, and it goes on doing so: without an answer its time is not known.
    with contextlib.suppress(BrokerError):
        (last,) = await read_entries(environment.ledgers, ledger.ledger_id, at, at, settings.read_bytes_max)
        stamp.resume(broker_entry_metadata.decode(last.header).broker_timestamp_ms or -1)


async def _last_metadata(
    name: str, ledger: LedgerInfo, environment: ManagedLedgerEnvironment, settings: ManagedLedgerSettings
) -> EntryMetadata:
    """Returns the metadata of the last entry that can be read; without fields for a ledger without entries.

    A lost entry raises, unless `autoSkipNonRecoverableData`: then an earlier entry tells. The indexes of the lost entry
    are given again, because its number of messages is lost too; readers skip it, so no client sees an index twice.
    """
    for at in reversed(range(ledger.entries)):
        try:
            (last,) = await read_entries(
                environment.ledgers, ledger.ledger_id, at, at, settings.read_bytes_max
            )
        except (EntryDamaged, NoSuchEntry) as error:
            log.error(
                "! the last entry %d:%d of %s is lost: %s%s",
                *(ledger.ledger_id, at, name, error),
                "; its indexes are given again"
                if settings.skips_lost
                else ", so its topic cannot be opened. Bring its file back, or set autoSkipNonRecoverableData=true",
            )
            if not settings.skips_lost:
                raise
        else:
            return broker_entry_metadata.decode(last.header)
    return broker_entry_metadata.decode(b"")
