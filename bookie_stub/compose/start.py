"""Starting: directories, indexes, ledgers, and the journal's replay, before the first request.

When `recover` returns, all that was ever acknowledged is in the entry logs and indexes, and the mark says so.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import BookieStats
from bookie_stub.cluster.cluster_ledgers import ClusterLedgers
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.checkpoint import Checkpoint, CheckpointWriter
from bookie_stub.disk.directories import Cluster, Directories, LastStop
from bookie_stub.disk.entry_log import file_name
from bookie_stub.disk.ledger_storage import LedgerStorage, Storages
from bookie_stub.disk.write_cache import WriteCache
from bookie_stub.journal.journal_file import Marks
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.limbo import put_in_limbo, remember
from bookie_stub.ledgers.replay import Replay
from bookie_stub.upkeep.compaction import finish_compactions

log = logging.getLogger(__name__)


class Disk(NamedTuple):
    """The files of a bookie."""

    directories: Directories
    storages: Storages
    writer: CheckpointWriter


class Recovered(NamedTuple):
    ledgers: dict[int, Ledger]
    marks: Marks
    """Behind everything that was replayed."""
    lossy: bool
    """Whole ledgers may have been lost (BP-46), and nobody could say which."""


def open_disk(
    settings: BookieSettings, file_system: FileSystem, stats: BookieStats, cluster: Cluster | None
) -> Disk:
    directories = Directories(
        settings.journal_directories, settings.ledger_directories, settings.index_directories, file_system
    )
    directories.prepare(settings.bookie_id, cluster)
    opened: list[LedgerStorage] = []
    try:
        for ledgers, index in zip(directories.ledgers, directories.indexes, strict=True):
            opened.append(LedgerStorage(ledgers, index, settings, file_system))
            finish_compactions(opened[-1])
            _look_for_logs(opened[-1])
    except BaseException:
        Storages(opened).close()
        raise
    storages = Storages(opened)
    return Disk(directories, storages, CheckpointWriter(directories, storages, stats))


def _look_for_logs(storage: LedgerStorage) -> None:
    """Say what is lost. Logs that no row names were removed by another bookie on these files, and are forgotten."""
    inventory = storage.inventory
    lost = set(inventory.shorter)
    if inventory.missing:
        lost |= storage.named_logs(inventory.missing)
        inventory.removed(set(inventory.missing) - lost)
    if lost:
        log.error(
            "%s: entry logs %s are missing or cut; their entries are answered with an I/O error;"
            " `magnetar bookie check` lists them, `magnetar bookie index rebuild` looks for them in the journals",
            storage.directory,
            ", ".join(map(file_name, sorted(lost))),
        )


def recover(
    settings: BookieSettings, disk: Disk, metadata: ClusterLedgers | None, started: float
) -> Recovered:
    """Ledgers from index and journal; what was replayed is in the logs when this returns.

    After a loss the cluster's `metadata` is asked which ledgers may have been lost as a whole. Raises BookieError,
    also when that cannot be had, or OSError.
    """
    directories, storages = disk.directories, disk.storages
    last_stop = directories.last_stop()
    ledgers, half_deleted, lossy = _load_ledgers(storages)
    marks = directories.read_marks()

    def flush() -> None:
        changed = {ledger_id: ledgers[ledger_id].data() for ledger_id in replay.changed}
        disk.writer.write(Checkpoint(0, marks, replay.cache, changed, frozenset(replay.deleted)))
        replay.cache = WriteCache()
        replay.changed.clear()
        replay.deleted.clear()

    replay = Replay(ledgers, settings.write_cache_bytes // 2, flush, storages.has_deleted)
    replay.deleted |= half_deleted
    # Of a journal that was not synced anything may be torn when the machine goes down.
    skip = settings.skip_invalid_records or last_stop is LastStop.UNSYNCED
    journals = zip(directories.journals, marks, strict=True)
    ends = tuple([replay.run(directory, mark, skip_invalid=skip) for directory, mark in journals])
    loss = _loss(last_stop, replay)
    if loss:
        log.warning("%s: acknowledged entries may be lost%s", loss, _CONSEQUENCE[settings.integrity_checking])
    if loss and settings.integrity_checking:
        lossy = True
        storages.note_lossy()
        put_in_limbo(ledgers.values(), replay.changed)
    asked = lossy and metadata is not None
    if lossy and metadata is not None:
        found = remember(metadata.naming(settings.bookie_id), ledgers, replay.changed, storages.has_deleted)
        log.warning("%d ledgers that the cluster has on this bookie are forgotten: fenced, in limbo", found)
    if replay.records or replay.changed or replay.deleted:
        flush()
    if ends != marks or not directories.have_marks:
        disk.writer.move_marks(ends)
    if asked:
        storages.note_lost_ledgers_known()
    directories.begin(journal_synced=settings.journal_sync_data)  # until here the next start judges the same
    log.info(
        "bookie opened in %.0f ms: %d ledgers, %d journal records replayed, %d skipped%s",
        (time.perf_counter() - started) * 1000,
        len(ledgers),
        replay.records,
        replay.skipped,
        "" if last_stop is LastStop.CLEAN else ", the last stop was not clean",
    )
    return Recovered(ledgers, ends, lossy and not asked)


def _load_ledgers(storages: Storages) -> tuple[dict[int, Ledger], set[int], bool]:
    """All ledgers; those of a checkpoint that died between the tombstones and the indexes; whether whole ledgers may
    be forgotten."""
    ledgers: dict[int, Ledger] = {}
    half_deleted: set[int] = set()
    lossy = False
    for storage in storages.all:
        found, its_lossy = storage.ledger_index.load()
        lossy |= its_lossy
        for ledger_id, data in found.items():
            if ledger_id in storage.tombstones:
                half_deleted.add(ledger_id)
            else:
                ledgers[ledger_id] = Ledger(ledger_id, data, stored=True)
    return ledgers, half_deleted, lossy


_CONSEQUENCE = {
    True: "; every ledger is fenced, and what it does not have is answered as unknown",
    False: "; dataIntegrityCheckingEnabled=true would have answered them as unknown instead of missing",
}


def _loss(last_stop: LastStop, replay: Replay) -> str:
    """Why acknowledged entries may be missing after the replay, or nothing."""
    if last_stop is LastStop.UNSYNCED:
        return "the machine went down while the journal was not synced (journalSyncData=false)"
    if replay.cut:
        return "a journal is cut"
    if replay.damaged:
        return "damaged records of the journal were given up (skipReplayJournalInvalidRecord)"
    return ""
