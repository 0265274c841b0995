"""Starting: directories, indexes, ledgers, and the journal's replay, before the first request.

When `recover` returns, all that was ever acknowledged is in the entry logs and indexes, and the mark says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bookie_stub.checkpoint import Checkpoint, CheckpointWriter
from bookie_stub.config import BookieSettings
from bookie_stub.directories import Cluster, Directories, LastRun
from bookie_stub.entry_log import EntryLogReader, EntryLogWriter
from bookie_stub.file_system import FileSystem
from bookie_stub.garbage_collector import GarbageCollector
from bookie_stub.journal import Journal
from bookie_stub.journal_file import Mark, journal_ids
from bookie_stub.ledger import Ledger
from bookie_stub.ledger_index import LedgerIndex
from bookie_stub.location_index import LocationIndex
from bookie_stub.metrics import BookieStats
from bookie_stub.posting import Post
from bookie_stub.replay import Replay
from bookie_stub.write_cache import CacheHalf

log = logging.getLogger(__name__)


class Disk(NamedTuple):
    """The files of a bookie, in the order of their opening."""

    directories: Directories
    logs: EntryLogWriter
    log_reader: EntryLogReader
    locations: LocationIndex
    ledger_index: LedgerIndex
    writer: CheckpointWriter


class Recovered(NamedTuple):
    ledgers: dict[int, Ledger]
    mark: Mark
    """Behind everything that was replayed."""
    lossy: bool
    """Whole ledgers may have been lost (BP-46)."""


def open_disk(
    settings: BookieSettings, file_system: FileSystem, stats: BookieStats, cluster: Cluster | None
) -> Disk:
    directories = Directories(
        settings.journal_directory, settings.ledgers_directory, settings.index_directory, file_system
    )
    directories.prepare(settings.bookie_id, cluster)
    logs = EntryLogWriter(directories.ledgers, settings.entry_log_bytes_max, file_system)
    log_reader = EntryLogReader(directories.ledgers)
    locations = LocationIndex(directories.index / "locations")
    ledger_index = LedgerIndex(directories.index / "ledgers")
    garbage = GarbageCollector(directories.ledgers, logs, log_reader, file_system)
    writer = CheckpointWriter(directories, logs, locations, ledger_index, garbage, stats)
    return Disk(directories, logs, log_reader, locations, ledger_index, writer)


def open_journal(
    settings: BookieSettings,
    disk: Disk,
    mark: Mark,
    file_system: FileSystem,
    stats: BookieStats,
    post: Post,
    on_failure: Callable[[], None],
) -> Journal:
    """Behind everything that was replayed."""
    directory = disk.directories.journal
    return Journal(
        directory,
        last_id=max(journal_ids(directory), default=0),
        mark=mark,
        sync=settings.journal_sync_data,
        alignment=settings.journal_alignment,
        file_bytes_max=settings.journal_bytes_max,
        allocate_bytes=settings.journal_allocate_bytes,
        file_system=file_system,
        stats=stats,
        post=post,
        on_failure=on_failure,
    )


def recover(settings: BookieSettings, disk: Disk, started: float) -> Recovered:
    """Ledgers from index and journal; what was replayed is in the logs when this returns."""
    directories = disk.directories
    last_run = directories.begin(journal_synced=settings.journal_sync_data)
    found, lossy = disk.ledger_index.load()
    ledgers = {ledger_id: Ledger(ledger_id, data, stored=True) for ledger_id, data in found.items()}
    mark = directories.read_mark()

    def flush() -> None:
        changed = {ledger_id: ledgers[ledger_id].data() for ledger_id in replay.changed}
        disk.writer.write(Checkpoint(0, mark, replay.half, changed, frozenset(replay.deleted)))
        replay.half = CacheHalf()
        replay.changed.clear()
        replay.deleted.clear()

    replay = Replay(ledgers, settings.write_cache_bytes // 2, flush)
    end = replay.run(directories.journal, mark, skip_invalid=settings.skip_invalid_records)
    loss = _loss(last_run, replay)
    if loss and settings.integrity_checking:
        lossy = True
        _put_in_limbo(ledgers.values(), replay.changed)
        disk.ledger_index.note_lossy()
    if replay.records or replay.changed:
        flush()
    if end != mark:
        disk.writer.move_mark(end)
    if loss:
        log.warning("%s: acknowledged entries may be lost%s", loss, _CONSEQUENCE[settings.integrity_checking])
    log.info(
        "bookie opened in %.0f ms: %d ledgers, %d journal records replayed, %d skipped%s",
        (time.perf_counter() - started) * 1000,
        len(ledgers),
        replay.records,
        replay.skipped,
        "" if last_run is LastRun.CLEAN else ", the last stop was not clean",
    )
    return Recovered(ledgers, end, lossy)


_CONSEQUENCE = {
    True: "; every ledger is fenced, and what it does not have is answered as unknown",
    False: "; dataIntegrityCheckingEnabled=true would have answered them as unknown instead of missing",
}


def _loss(last_run: LastRun, replay: Replay) -> str:
    """Why acknowledged entries may be missing after the replay, or nothing."""
    if replay.damaged:
        return "damaged records of the journal were given up (skipReplayJournalInvalidRecord)"
    if last_run is LastRun.UNSYNCED:
        return "the machine went down while the journal was not synced (journalSyncData=false)"
    return ""


def _put_in_limbo(ledgers: Iterable[Ledger], changed: set[int]) -> None:
    """Fenced, because a fence may be among what was lost."""
    for ledger in ledgers:
        ledger.limbo = ledger.fenced = ledger.fence_durable = True
        changed.add(ledger.ledger_id)
