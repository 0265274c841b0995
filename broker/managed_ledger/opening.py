"""Opening a log: from what the metadata store and the bookie have to a list of ledgers whose ends are known.

A log that is new costs one write. One that was closed costs none. After a crash the ledger that was being
written is recovered and closed. No ledger is begun here: an id is reserved, and the first add writes it down.
"""

from __future__ import annotations

import asyncio
import logging

from broker.managed_ledger.ground import EntryStamp, Ground
from broker.managed_ledger.ledger_info import LogInfo, decode_log, log_key
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.log_record import LogRecord
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.metadata.metadata_store import ABSENT
from broker.model.entry import Entry
from broker.model.errors import BrokerError
from protocol import broker_entry_metadata

log = logging.getLogger(__name__)

INDEX = "index"
"""The property that keeps the number of the last message over a close of the ledger (PIP-70)."""


async def open_log(
    name: str, ground: Ground, settings: ManagedLedgerSettings, stamp: EntryStamp
) -> LogRecord:
    """Raises MetadataError or PersistenceError; opening may then be tried again."""
    found = await ground.metadata.get(log_key(name))
    info, version = (decode_log(found.value), found.version) if found else (LogInfo(), ABSENT)
    if info.deleted:
        await _record(name, ground, info, [], version, 0).finish_delete()
        info, version = LogInfo(), ABSENT
    stamp.index = int(info.properties.get(INDEX, "-1"))
    ends: list[LedgerInfo] = []
    emptied: list[int] = []
    left_open = False
    for ledger in info.ledgers:
        if ledger.closed_at_ms is None:
            left_open = True
            await _find_end(name, ledger, ground, settings, stamp)
            info.properties[INDEX] = str(stamp.index)
        if ledger.entries:
            ends.append(ledger)
        else:
            emptied.append(ledger.ledger_id)
    highest = max([ledger.ledger_id for ledger in info.ledgers] + info.deleting, default=-1)
    current_id = await ground.ids.next(above=highest)
    record = _record(name, ground, info, ends, version, current_id)
    if emptied or info.deleting:
        record.forget(emptied)
        await record.remove_forgotten()
    elif version == ABSENT or left_open:
        await record.save()
    return record


def _record(
    name: str,
    ground: Ground,
    info: LogInfo,
    ends: list[LedgerInfo],
    version: int,
    current_id: int,
) -> LogRecord:
    if info.terminated is not None and ends:
        ledgers = LedgerList(ends[:-1], ends[-1])  # Nothing will be added: the last ledger stays current.
    else:
        ledgers = LedgerList(ends, LedgerInfo(current_id))
    return LogRecord(name, ground.metadata, ground.ledgers, ledgers, info, version)


async def _find_end(
    name: str, ledger: LedgerInfo, ground: Ground, settings: ManagedLedgerSettings, stamp: EntryStamp
) -> None:
    """Fill in how many entries the ledger has, which is recovered unless it is closed; its last entry has the index."""
    metadata = await ground.ledgers.recover(ledger.ledger_id)
    if metadata is None:  # They begin together: somebody has deleted it since.
        log.warning("%s names ledger %d, which the metadata store does not have", name, ledger.ledger_id)
    else:
        # Entries behind a closed end were never confirmed.
        ledger.entries = metadata.last_entry_id + 1
        ledger.size_bytes = metadata.length
        if ledger.entries:
            last = await _read_one(ground, ledger.ledger_id, ledger.entries - 1, settings)
            index = broker_entry_metadata.decode(last.header).index
            stamp.index = stamp.index if index is None else index
    ledger.closed_at_ms = ground.wall_ms()


async def _read_one(ground: Ground, ledger_id: int, entry_id: int, settings: ManagedLedgerSettings) -> Entry:
    answer: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()

    def done(entries: list[Entry], error: BrokerError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(entries[0])

    ground.ledgers.read(ledger_id, entry_id, entry_id, settings.read_bytes_max, done)
    return await answer
