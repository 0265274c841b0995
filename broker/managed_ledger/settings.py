"""ManagedLedgerSettings: the keys of broker.conf about managed ledgers and their cursors."""

from __future__ import annotations

from typing import Final, NamedTuple

from bookkeeper.ensembles.racks import Affinity
from bookkeeper.ensembles.settings import Copies
from broker.config.fields import broker_key
from broker.managed_ledger.ledger_list import FILES, OffloadPlace
from broker.managed_ledger.records.pulsar_records import Compression
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings
from foundation.units import MIB, MS_PER_MINUTE, NS_PER_SECOND
from protocol.pulsar_api_pb2 import CompressionType

BOOKKEEPER_FIRST: Final = "bookkeeper-first"


class OffloadRules(NamedTuple):
    """The values of a topic: of its policies, of its namespace's, of the broker's keys, the first that is set."""

    place: OffloadPlace = OffloadPlace("")
    """The storage for copies; without a driver nothing is copied."""
    files: OffloadPlace = OffloadPlace(FILES)
    """The storage where a policy says `filesystem`, by the broker's keys."""
    s3: OffloadPlace = OffloadPlace("aws-s3")
    """The storage where a policy names a driver of S3, by the broker's keys."""
    threshold_bytes: int = -1
    """Bytes of a topic that stay in the bookies alone; below 0 = no limit."""
    threshold_s: int = -1
    """Seconds after which a closed ledger is copied; below 0 = never."""
    deletion_lag_ms: int = 4 * 60 * MS_PER_MINUTE
    """Milliseconds that a copied ledger stays in the bookies; below 0 = for ever."""
    bookkeeper_first: bool = False
    """A ledger that is in both is read from the bookies."""
    block_bytes: int = 64 * MIB
    """The most that a block of the data has."""
    read_bytes: int = MIB
    """Bytes that are read at once."""


def _read_bytes_max(settings: Settings) -> int:
    # One batch read must stay below the frame limit of the ledger client, which follows maxMessageSize.
    return min(settings.int("dispatcherMaxReadSizeBytes"), settings.int("maxMessageSize"))


def _list_compression(settings: Settings) -> Compression:
    kind = CompressionType.Value(settings.str("managedLedgerInfoCompressionType"))
    return Compression(kind, settings.int("managedLedgerInfoCompressionThresholdInBytes"))


def _cursor_compression(settings: Settings) -> Compression:
    kind = CompressionType.Value(settings.str("managedCursorInfoCompressionType"))
    return Compression(kind, settings.int("managedCursorInfoCompressionThresholdInBytes"))


def _node_ranges_max(settings: Settings) -> int:
    # As Pulsar: the name of versions before 3.0 wins where it is set.
    former = settings.int("managedLedgerMaxUnackedRangesToPersistInZooKeeper")
    return former if former > 0 else settings.int("managedLedgerMaxUnackedRangesToPersistInMetadataStore")


def _offload(settings: Settings) -> OffloadRules:
    driver, files = (
        settings.str("managedLedgerOffloadDriver"),
        OffloadPlace(FILES, endpoint=settings.str("fileSystemURI")),
    )
    s3 = OffloadPlace(
        "aws-s3",
        *(
            next(filter(None, map(settings.str, _keys_of(name))), "")
            for name in ("Bucket", "Region", "ServiceEndpoint")
        ),
    )
    return OffloadRules(
        files if driver == FILES else s3._replace(driver=driver) if driver else OffloadPlace(""),
        files,
        s3,
        settings.int("managedLedgerOffloadAutoTriggerSizeThresholdBytes"),
        settings.int("managedLedgerOffloadThresholdInSeconds"),
        settings.int("managedLedgerOffloadDeletionLagMs"),
        settings.str("managedLedgerDataReadPriority") == BOOKKEEPER_FIRST,
        *(
            next(filter(None, map(settings.int, _keys_of(name))))
            for name in ("MaxBlockSizeInBytes", "ReadBufferSizeInBytes")
        ),
    )


def _keys_of(name: str) -> tuple[str, str]:
    """Returns the keys of a fact of the object storage; the first one, for any driver, wins where it is set."""
    return f"managedLedgerOffload{name}", f"s3ManagedLedgerOffload{name}"


class ManagedLedgerSettings(RoomSettings):
    """Limits of ledgers, persistence of cursors, and the rules for caching."""

    entries_per_ledger_max: int = broker_key.int("managedLedgerMaxEntriesPerLedger")
    ledger_bytes_max: int = broker_key.int("managedLedgerMaxSizePerLedgerMbytes", "bytes")
    rollover_ns_min: int = broker_key.int("managedLedgerMinLedgerRolloverTimeMinutes", "ns")
    rollover_ns_max: int = broker_key.int("managedLedgerMaxLedgerRolloverTimeMinutes", "ns")
    mark_delete_rate: float = broker_key.float("managedLedgerDefaultMarkDeleteRateLimit")
    ack_ranges_max: int = broker_key.int("managedLedgerMaxUnackedRangesToPersist")
    node_ranges_max: int = broker_key.rule(_node_ranges_max)
    """Acknowledged ranges that a cursor's node has in Pulsar's form."""
    acks_as_bits: bool = broker_key.bool("managedLedgerPersistIndividualAckAsLongArray")
    cursor_entries_max: int = broker_key.int("managedLedgerCursorMaxEntriesPerLedger")
    cursor_rollover_ns: int = broker_key.int("managedLedgerCursorRolloverTimeInSeconds", "ns")
    batch_ack_sets_max: int = broker_key.int("managedLedgerMaxBatchDeletedIndexToPersist")
    list_compression: Compression = broker_key.rule(_list_compression)
    """Of the stored list of ledgers."""
    cursor_compression: Compression = broker_key.rule(_cursor_compression)
    """Of the stored positions of cursors."""
    read_bytes_max: int = broker_key.rule(_read_bytes_max)
    """Bytes that one batch read asks of the ledger client."""
    track_mark_delete: bool = broker_key.bool("cacheEvictionByMarkDeletedPosition")
    expected_reads: bool = broker_key.bool("cacheEvictionByExpectedReadCount")
    continue_caching_ns: int = broker_key.int(
        "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", "ns"
    )
    backlog_cursors_min_for_caching: int = broker_key.int("managedLedgerMinimumBacklogCursorsForCaching")
    """This field and the next three have no effect while `expected_reads`."""
    backlog_entries_min_for_caching: int = broker_key.int("managedLedgerMinimumBacklogEntriesForCaching")
    backlog_between_cursors_max_for_caching: int = broker_key.int(
        "managedLedgerMaxBacklogBetweenCursorsForCaching"
    )
    cursor_backlogged_threshold: int = broker_key.int("managedLedgerCursorBackloggedThreshold")
    offload: OffloadRules = broker_key.rule(_offload)
    """Copies of closed ledgers in other storage."""
    offload_at_open: bool = broker_key.bool("triggerOffloadOnTopicLoad")
    copies: Copies | None = broker_key.rule(lambda _: None)
    """Bookies of the next ledger and copies of its entries, by a policy; None = the ledger client's settings."""
    affinity: Affinity | None = broker_key.rule(lambda _: None)
    """Groups of bookies for the next ledger, by a policy."""
    read_timeout_s: int = broker_key.int("managedLedgerReadEntryTimeoutSeconds")
    skips_lost: bool = broker_key.bool("autoSkipNonRecoverableData")
    delayed_segment_entries: int = broker_key.int("delayedDeliveryMaxIndexesPerBucketSnapshotSegment")
    delayed_bucket_entries: int = broker_key.int("delayedDeliveryMinIndexCountPerBucket")

    def __post_init__(self) -> None:
        if self.entries_per_ledger_max < 1:
            raise ValueError(f"managedLedgerMaxEntriesPerLedger is below 1: {self.entries_per_ledger_max}")
        if self.ledger_bytes_max < 1:
            raise ValueError(f"managedLedgerMaxSizePerLedgerMbytes is below 1 byte: {self.ledger_bytes_max}")
        if self.read_bytes_max < 1:
            raise ValueError(f"bytes per read are below 1: {self.read_bytes_max}")

    @property
    def cursor_write_interval_ns(self) -> int:
        """Time between two writes of a cursor's info; 0 = each change is written."""
        return round(NS_PER_SECOND / self.mark_delete_rate) if self.mark_delete_rate > 0 else 0
