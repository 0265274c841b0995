"""The start of a bookie: opens its files, then replays the journals.

Invariant: when `recover` returns, everything that was ever acknowledged is in entry logs and indexes, and the log
marks say so; or it is in `Recovered.unwritten`, because the disk is full, and the log marks stand before it.
`Bookie.open` calls `open_disk` and then `recover`, before the first request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bookie_stub.base.disk_space import is_full
from bookie_stub.base.errors import BookieError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import AtEndOfTurn, Post
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.checkpoint import Checkpoint, CheckpointWriter
from bookie_stub.disk.cookie import HomeCluster
from bookie_stub.disk.directories import Directories, LastStop
from bookie_stub.disk.entry_log import file_name
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.disk.ledger_storage import LedgerStorage, Storages
from bookie_stub.disk.write_cache import WriteCache
from bookie_stub.journal.journal_file import Marks, bytes_after
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.limbo import add_lost_ledgers, put_in_limbo
from bookie_stub.ledgers.replay import JournalReplay
from bookie_stub.upkeep.compaction import finish_compactions
from foundation.value import Value

if TYPE_CHECKING:
    from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers

log = logging.getLogger(__name__)


class Environment(Value, kw_only=True):
    """Everything that a bookie is given from outside."""

    settings: BookieSettings
    """Fixed for the life of the bookie."""
    post: Post
    """Brings a callback into the loop from any thread (`loop.call_soon_threadsafe`)."""
    file_system: FileSystem
    """Writes and syncs; tests replace it by one that fails."""
    cluster: HomeCluster | None = None
    """Keeps the cookie of a bookie that registers. None for a bookie on its own."""
    metadata: ZooKeeperLedgers | None = None
    """Knows which ledgers exist; None: ledgers are deleted by call only."""
    at_end_of_turn: AtEndOfTurn | None = None
    """Lets journals gather the records of a turn; None: each record goes to the journal's thread at once."""


class OpenDisk(NamedTuple):
    """The open files of a bookie."""

    directories: Directories
    """Cookies, log marks and the record of the last stop."""
    storages: Storages
    """Entry logs and indexes, one storage for each ledger directory."""
    writer: CheckpointWriter
    """Writes checkpoints into the storages."""


class Recovered(NamedTuple):
    """The result of a start."""

    ledgers: dict[int, Ledger]
    """All known ledgers by id."""
    marks: Marks
    """The end of each journal; the replay has applied everything before it."""
    saved_marks: Marks
    """The log marks on disk; after `marks` when there is something unwritten."""
    lossy: bool
    """True when unknown ledgers may have been lost as a whole (BP-46)."""
    unwritten: Checkpoint | None = None
    """The replayed entries, when the disk has no space for them; the running bookie writes them later."""
    deleted: frozenset[int] = frozenset()
    """Ledgers whose deletion is unwritten too."""


def open_disk(environment: Environment, stats: BookieStats) -> OpenDisk:
    """Checks the directories and opens entry logs and indexes; finishes interrupted compactions.

    Raises BookieError when a directory must not be used, OSError when it cannot be."""
    settings, file_system = environment.settings, environment.file_system
    directories = Directories(
        settings.journal_directories, settings.ledger_directories, settings.index_directories, file_system
    )
    directories.prepare(settings.bookie_id, environment.cluster)
    opened: list[LedgerStorage] = []
    try:
        for ledgers, index in zip(directories.ledgers, directories.indexes, strict=True):
            opened.append(LedgerStorage(ledgers, index, settings, file_system))
            finish_compactions(opened[-1])
            _report_lost_logs(opened[-1])
    except BaseException:
        # RocksDB holds a lock file: without this the next start in the same process would find the index in use.
        Storages(opened).close()
        raise
    storages = Storages(opened)
    return OpenDisk(directories, storages, CheckpointWriter(directories, storages, stats))


def _report_lost_logs(storage: LedgerStorage) -> None:
    """Logs which entry logs are missing or cut.

    Missing logs that no row names were removed by BookKeeper, if it worked on this directory; they leave the
    inventory."""
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


def recover(environment: Environment, disk: OpenDisk, started: float) -> Recovered:
    """Reads the ledgers, replays the journals, writes out the result.

    After a loss the cluster's metadata tells which ledgers may have been lost as a whole. Raises OSError or
    BookieError, also when the metadata store cannot be asked. `started` is the `perf_counter` at which the start
    began, for the log line.
    """
    settings, metadata = environment.settings, environment.metadata
    directories, storages = disk.directories, disk.storages
    last_stop = directories.last_stop()
    ledgers, half_deleted, lossy = _load_ledgers(storages)
    marks = directories.read_marks()
    write = partial(_write_replayed, disk.writer, marks)
    replay = JournalReplay(
        ledgers, _bytes_between_flushes(environment, disk, marks), write, storages.has_deleted
    )
    # Their checkpoint was killed between tombstone and indexes. The replay's flush removes their rows.
    replay.deleted |= half_deleted
    # Any part of a journal that was not synced may be torn after a power cut, so its damage proves nothing.
    skip = settings.skip_invalid_records or last_stop is LastStop.UNSYNCED
    journals = zip(directories.journals, marks, strict=True)
    ends = tuple([replay.replay_journal(directory, mark, skip_invalid=skip) for directory, mark in journals])
    if _note_loss(last_stop, replay, settings):
        lossy = True
        storages.note_lossy()
        put_in_limbo(ledgers.values(), replay.changed)
    asked = lossy and metadata is not None
    if lossy and metadata is not None:
        named = metadata.naming(settings.bookie_id)
        count = add_lost_ledgers(named, ledgers, replay.changed, storages.has_deleted)
        log.warning("%d ledgers that the cluster has on this bookie are not here: fenced, in limbo", count)
    unwritten = None
    if replay.records or replay.changed or replay.deleted:
        unwritten = _flush_or_keep(replay, marks, lossy=lossy)
    # A first start writes marks before the first journal exists, so a later start notices when that journal is missing.
    if unwritten is None and (ends != marks or not directories.have_marks):
        disk.writer.move_marks(ends)
    if asked:
        storages.note_lost_ledgers_known()
    # Last: a start that is killed before this line judges the same stop again.
    directories.begin(journal_synced=settings.journal_sync_data)
    log.info(
        "bookie opened in %.0f ms: %d ledgers, %d journal records replayed, %d skipped%s",
        (time.perf_counter() - started) * 1000,
        len(ledgers),
        replay.records,
        replay.skipped,
        "" if last_stop is LastStop.CLEAN else ", the last stop was not clean",
    )
    # Once the cluster has named every ledger that may be lost, any other unknown ledger was never here.
    return Recovered(
        ledgers,
        ends,
        ends if unwritten is None else marks,
        lossy and not asked,
        unwritten,
        frozenset(() if unwritten is None else replay.deleted),
    )


def _bytes_between_flushes(environment: Environment, disk: OpenDisk, marks: Marks) -> int:
    """Returns the bytes of replayed entries at which they are written out."""
    needed = sum(map(bytes_after, disk.directories.journals, marks))
    if all(storage.free_for_entries() >= needed for storage in disk.storages.all):
        # Half of the setting, the size of one write cache: a replay takes no more memory than the running bookie.
        return environment.settings.write_cache_bytes // 2
    # The logs cannot take all of it, so the marks cannot move. Then each start would write the first part once more,
    # until the disk is full. The running bookie had these entries in its write caches, so they fit into memory: small
    # entries take up to four times as much by themselves as in runs. More of them come only from a mark that is lost.
    return environment.settings.write_cache_bytes * 4


def _flush_or_keep(replay: JournalReplay, marks: Marks, *, lossy: bool) -> Checkpoint | None:
    """Writes the replayed entries out, or returns them as a checkpoint when the disk is full.

    Raises OSError or BookieError for any other reason, and after a loss, whose traces must be on disk before a request.
    """
    try:
        replay.flush()
    except (OSError, BookieError) as error:
        # RocksDB's errors have no number.
        if lossy or not (is_full(error) or "No space left" in str(error)):
            raise
        log.warning(
            "! no space for %d KiB that the journals have: they stay there and in memory until the disk has space: %s",
            *(replay.cache.size >> 10, error),
        )
        # The old marks, so that a crash replays all of it again; the deletions go with the checkpoint after this one.
        return Checkpoint(0, marks, replay.cache, replay.rows(), frozenset())
    return None


def _write_replayed(
    writer: CheckpointWriter,
    marks: Marks,
    cache: WriteCache,
    rows: Mapping[int, LedgerData],
    deleted: frozenset[int],
) -> None:
    writer.write(Checkpoint(0, marks, cache, rows, deleted))


def _load_ledgers(storages: Storages) -> tuple[dict[int, Ledger], set[int], bool]:
    """Reads the ledger indexes of all directories.

    Returns all ledgers, the ids of half-deleted ones, and True when whole ledgers may be lost.

    A ledger is half deleted when it has both a tombstone and a row: its checkpoint was killed in between."""
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


def _note_loss(last_stop: LastStop, replay: JournalReplay, settings: BookieSettings) -> bool:
    """Logs a loss. Returns True when the ledgers have to go into limbo for it."""
    loss = _loss(last_stop, replay)
    if not loss:
        return False
    log.warning("%s: acknowledged entries may be lost%s", loss, _CONSEQUENCE[settings.integrity_checking])
    return settings.integrity_checking


_CONSEQUENCE = {
    True: "; every ledger is fenced, and its missing entries are answered as unknown",
    False: "; dataIntegrityCheckingEnabled=true would answer missing entries as unknown instead of absent",
}


def _loss(last_stop: LastStop, replay: JournalReplay) -> str:
    """Returns why acknowledged entries may be missing after the replay. Empty when none can be."""
    if last_stop is LastStop.UNSYNCED:
        return "the machine went down while the journal was not synced (journalSyncData=false)"
    if replay.cut:
        return "a journal is cut"
    if replay.damaged:
        return "damaged records of the journal were given up (skipReplayJournalInvalidRecord)"
    return ""
