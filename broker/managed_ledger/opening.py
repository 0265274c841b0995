"""Opening a log: from what the metadata store and the bookie have to a list of ledgers whose ends are known.

A log that is new costs one write. One that was closed costs none. After a crash the ledger that was being
written is recovered and closed. No ledger is begun here: an id is reserved, and the first add writes it down.
"""

from __future__ import annotations

from broker.ledger_client.digest import check
from broker.ledger_client.ledger_metadata import LedgerState, decode, ledger_key
from broker.managed_ledger.ground import EntryStamp, Ground
from broker.managed_ledger.ledger_info import LogInfo, decode_log, log_key
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.log_record import LogRecord
from broker.managed_ledger.recovery import EMPTY, LedgerEnd, read_stored, recover
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.metadata.metadata_store import ABSENT
from protocol import broker_entry_metadata

INDEX = "index"
"""The property that keeps the number of the last message over a close of the ledger (PIP-70)."""


async def open_log(
    name: str, ground: Ground, settings: ManagedLedgerSettings, stamp: EntryStamp
) -> LogRecord:
    """Raises MetadataError or PersistenceError; opening may then be tried again."""
    found = await ground.metadata.get(log_key(name))
    info, version = (decode_log(found.value), found.version) if found else (LogInfo(), ABSENT)
    if info.deleted:
        await _record(name, ground, settings, info, [], version, 0).finish_delete()
        info, version = LogInfo(), ABSENT
    stamp.index = int(info.properties.get(INDEX, "-1"))
    ends: list[LedgerInfo] = []
    emptied: list[int] = []
    unsealed: dict[int, int] = {}
    for ledger in info.ledgers:
        if ledger.closed_at_ms is None:
            last = await _find_end(ledger, ground, settings, unsealed)
            _restore_index(ledger, last, stamp)
            info.properties[INDEX] = str(stamp.index)
        if ledger.entries:
            ends.append(ledger)
        else:
            emptied.append(ledger.ledger_id)
    highest = max([ledger.ledger_id for ledger in info.ledgers] + info.deleting, default=-1)
    current_id = await ground.ids.next(above=highest)
    record = _record(name, ground, settings, info, ends, version, current_id)
    for ledger_id, ledger_version in unsealed.items():
        record.unseal(ledger_id, ledger_version)
    if emptied or info.deleting:
        await record.remove(emptied)
    elif version == ABSENT or unsealed:
        await record.save()
    return record


def _record(
    name: str,
    ground: Ground,
    settings: ManagedLedgerSettings,
    info: LogInfo,
    ends: list[LedgerInfo],
    version: int,
    current_id: int,
) -> LogRecord:
    if info.terminated is not None and ends:
        ledgers = LedgerList(ends[:-1], ends[-1])  # Nothing will be added: the last ledger stays current.
    else:
        ledgers = LedgerList(ends, LedgerInfo(current_id))
    return LogRecord(name, ground.metadata, ground.ledgers, ledgers, info, version, settings.bookie_id)


async def _find_end(
    ledger: LedgerInfo, ground: Ground, settings: ManagedLedgerSettings, unsealed: dict[int, int]
) -> LedgerEnd:
    """Fill in how many entries the ledger has; an open one is fenced and recovered."""
    found = await ground.metadata.get(ledger_key(ledger.ledger_id))
    if found is None:  # The crash came between the list and the ledger's own metadata: never used.
        end = EMPTY
    else:
        metadata = decode(found.value)
        if metadata.state is LedgerState.CLOSED:  # Entries behind a closed end were never confirmed.
            last = await read_stored(ground.ledgers, ledger.ledger_id, metadata.last_entry_id)
            end = LedgerEnd(metadata.last_entry_id, metadata.length, last)
        else:
            end = await recover(ground.ledgers, ledger.ledger_id, settings.read_bytes_max)
            unsealed[ledger.ledger_id] = found.version
    ledger.entries = end.last_entry_id + 1
    ledger.size_bytes = end.length
    ledger.closed_at_ms = ground.wall_ms()
    return end


def _restore_index(ledger: LedgerInfo, end: LedgerEnd, stamp: EntryStamp) -> None:
    if not end.last_stored:
        return
    payload = check(ledger.ledger_id, end.last_entry_id, end.last_stored)
    header, _ = broker_entry_metadata.split(payload)
    index = broker_entry_metadata.decode(header).index
    if index is not None:
        stamp.index = index
