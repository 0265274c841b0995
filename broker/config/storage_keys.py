"""Rows of the broker's table: managed ledgers, cursors, the entry cache, its record, bookies.

Names and defaults are Pulsar's: its configuration class of release 4.2, and columns where 4.0 and 5.0 differ. The
words are ours. `foundation.settings.keys.Key` explains the columns.
"""

from __future__ import annotations

from typing import Final

from entry_cache.policy_names import PIP430, POLICY_NAMES
from foundation.settings.keys import COMPUTED, Key, Section
from foundation.units import MIB

COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
"""Names of protocol.pulsar_api_pb2.CompressionType, which a table of keys must not import."""

OFFLOAD_DRIVERS = ("", "filesystem", "aws-s3", "S3")
"""Pulsar's names of the storages that this broker has."""
OFFLOAD_BLOCK_BYTES_MIN = 5 * MIB
"""The least of a block of a copy, as Apache's offloaders have it: S3 takes no smaller part but the last one."""
OFFLOAD_READ_BYTES_MIN = 4096
"""The least of a read from a copy."""

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

LEDGERS = Section("Managed ledger", (
    Key("managedLedgerMaxEntriesPerLedger", "int", 50_000, "entries", low=1,
        doc="Entries after which a topic goes on to a new ledger, once "
            "managedLedgerMinLedgerRolloverTimeMinutes are over."),
    Key("managedLedgerMaxSizePerLedgerMbytes", "int", 2048, "MiB", low=1,
        doc="MiB after which a topic goes on to a new ledger, once "
            "managedLedgerMinLedgerRolloverTimeMinutes are over."),
    Key("managedLedgerMinLedgerRolloverTimeMinutes", "int", 10, "min", low=0,
        doc="Minutes that a ledger stays open at least, even if it is full; 0: a full ledger is closed at "
            "once."),
    Key("managedLedgerMaxLedgerRolloverTimeMinutes", "int", 240, "min",
        doc="Minutes after which a ledger that has entries is closed and a new one opened; 0 or less: never "
            "by time."),
    Key("managedLedgerNewEntriesCheckDelayInMillis", "int", 10, "ms", low=0, used=False,
        doc="Milliseconds after which a cursor that found no entry tries again before it waits for a "
            "wake-up."),
    Key("managedLedgerStatsPeriodSeconds", "int", 60, "s", low=1,
        doc="Seconds over which the rates of the managed ledgers and of the entry cache are computed."),
    Key("defaultRetentionTimeInMinutes", "int", 0, "min", low=-1,
        doc="Minutes that acknowledged entries are kept, where no policy says otherwise; -1 means for ever."),
    Key("defaultRetentionSizeInMB", "int", 0, "MiB", low=-1,
        doc="MiB of entries up to which a topic keeps acknowledged ones, where no policy says otherwise; -1 means "
            "all."),
    Key("autoSkipNonRecoverableData", "bool", False, dynamic=True,
        doc="Skip entries that no bookie has any more, or only damaged ones, instead of stopping their readers: such an "
            "entry counts as acknowledged after three failed reads, and the log names it."),
    Key("retentionCheckIntervalInSeconds", "int", 120, "s", low=1,
        doc="Seconds between two searches for ledgers that no subscription needs any more."),
))

_URL: Final = ("|https?://.+", "http(s)://HOST:PORT")

OFFLOAD = Section("Tiered storage", (
    Key("managedLedgerOffloadDriver", "string", "", choices=OFFLOAD_DRIVERS,
        doc="Storage for copies of closed ledgers: `filesystem` with `fileSystemURI`, `aws-s3` for Amazon, `S3` for another "
            "service with `s3ManagedLedgerOffloadServiceEndpoint`. Empty: ledgers stay in the bookies, where no policy "
            "names a storage."),
    Key("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "long", -1, "bytes", low=-1,
        doc="Bytes of a topic that stay in the bookies alone; the oldest closed ledgers above it are copied. -1: none "
            "by size."),
    Key("managedLedgerOffloadThresholdInSeconds", "long", -1, "s", low=-1,
        doc="Seconds after which a closed ledger is copied; -1: none by age."),
    Key("managedLedgerOffloadDeletionLagMs", "long", 14_400_000, "ms", low=-1,
        doc="Milliseconds after its copy for which a ledger stays in the bookies, too; -1: for ever."),
    Key("managedLedgerDataReadPriority", "string", "tiered-storage-first",
        choices=("tiered-storage-first", "bookkeeper-first"),
        doc="Where a ledger is read first that is in both; the other one is read when that fails."),
    Key("managedLedgerOffloadPrefetchRounds", "int", 1, "reads", low=0,
        doc="Reads of `s3ManagedLedgerOffloadReadBufferSizeInBytes` that are made ahead of a reader."),
    Key("fileSystemURI", "string", "", form=("|file:///.+", "file:///FOLDER"),
        doc="Folder for copies in files, as `file:///FOLDER`; it must exist. All brokers must see the same folder."),
    Key("managedLedgerOffloadBucket", "string", "",
        doc="As `s3ManagedLedgerOffloadBucket`, and wins where it is set. Apache's driver `S3` reads this key and the next "
            "four alone."),
    Key("managedLedgerOffloadRegion", "string", "", doc="As `s3ManagedLedgerOffloadRegion`."),
    Key("managedLedgerOffloadServiceEndpoint", "string", "", form=_URL, doc="As `s3ManagedLedgerOffloadServiceEndpoint`."),
    Key("managedLedgerOffloadMaxBlockSizeInBytes", "int", 0, "bytes", low=0,
        doc="As `s3ManagedLedgerOffloadMaxBlockSizeInBytes`; 0: that key's."),
    Key("managedLedgerOffloadReadBufferSizeInBytes", "int", 0, "bytes", low=0,
        doc="As `s3ManagedLedgerOffloadReadBufferSizeInBytes`; 0: that key's."),
    Key("s3ManagedLedgerOffloadBucket", "string", "", doc="Bucket for copies in S3; it must exist."),
    Key("s3ManagedLedgerOffloadRegion", "string", "", doc="Region of the bucket."),
    Key("s3ManagedLedgerOffloadServiceEndpoint", "string", "", form=_URL,
        doc="URL of an S3 service that is not Amazon's. Access keys come from the environment: `AWS_ACCESS_KEY_ID` and "
            "`AWS_SECRET_ACCESS_KEY`, or the machine's role."),
    Key("s3ManagedLedgerOffloadMaxBlockSizeInBytes", "int", 64 * MIB, "bytes", low=OFFLOAD_BLOCK_BYTES_MIN,
        doc="Bytes of a block of the copy, as Apache's offloaders write it."),
    Key("s3ManagedLedgerOffloadReadBufferSizeInBytes", "int", MIB, "bytes", low=OFFLOAD_READ_BYTES_MIN,
        doc="Bytes of whole entries that are read from a copy at once, each with its checksum."),
    Key("triggerOffloadOnTopicLoad", "bool", False,
        doc="Look at the thresholds when a topic opens, and not at the next round of `retentionCheckIntervalInSeconds` "
            "alone."),
))

CURSORS = Section("Cursors", (
    Key("managedLedgerCursorMaxEntriesPerLedger", "int", 50_000, "records", low=1,
        doc="Position records after which a cursor goes on to a new ledger, where the metadata store is ZooKeeper."),
    Key("managedLedgerCursorRolloverTimeInSeconds", "int", 14_400, "s", low=1,
        doc="Seconds after which a cursor goes on to a new ledger, where the metadata store is ZooKeeper."),
    Key("managedLedgerDefaultMarkDeleteRateLimit", "double", 1.0, "writes/s", low=0,
        doc="Times per second that one cursor's position is written; acknowledgments in between share a "
            "write. 0 writes after each of them."),
    Key("managedLedgerCursorPositionFlushSeconds", "int", 60, "s", low=1, used=False,
        doc="Seconds after which a position that the rate limit held back is written even if nothing else "
            "is acknowledged."),
    Key("managedLedgerMaxUnackedRangesToPersist", "int", 10_000, "ranges", v50=200_000, low=0,
        doc="Ranges of individually acknowledged entries that are stored with the position; more are "
            "delivered again after a restart."),
    Key("managedLedgerMaxBatchDeletedIndexToPersist", "int", 10_000, "batches", v50=200_000, low=0,
        doc="Batches acknowledged in part whose bits are stored with the position."),
    Key("managedLedgerMaxUnackedRangesToPersistInMetadataStore", "int", 1000, "ranges", v50=200_000, low=0,
        doc="Ranges up to which a cursor's node has them in Pulsar's form. With more, a cursor that closes leaves its "
            "position in its ledger, where the metadata store is ZooKeeper; elsewhere the node has the others packed."),
    Key("managedLedgerMaxUnackedRangesToPersistInZooKeeper", "int", -1, "ranges",
        doc="The former name of `managedLedgerMaxUnackedRangesToPersistInMetadataStore`, which wins above 0."),
    Key("managedLedgerInfoCompressionType", "string", "NONE", v50="LZ4", choices=COMPRESSIONS,
        doc="Compression of the list of a topic's ledgers in the metadata store. All kinds are read, whatever this says."),
    Key("managedLedgerInfoCompressionThresholdInBytes", "long", 16_384, "bytes", low=0,
        doc="Size above which a list is compressed."),
    Key("managedCursorInfoCompressionType", "string", "NONE", v50="LZ4", choices=COMPRESSIONS,
        doc="Compression of a cursor's position in the metadata store; one with properties is never compressed, because "
            "Pulsar 4.2 cannot read that."),
    Key("managedCursorInfoCompressionThresholdInBytes", "long", 16_384, "bytes", low=0,
        doc="Size above which a cursor's position is compressed."),
    Key("managedLedgerPersistIndividualAckAsLongArray", "bool", True, v40=False,
        doc="Store acknowledged entries in cursor ledgers as bit sets, one bit per entry, instead of as a list of ranges."),
))

ENTRY_CACHE = Section("Entry cache", (
    Key("managedLedgerCacheSizeMB", "int", None, "MiB", low=0, dynamic=True,
        computed="a fifth of direct memory, at least 64",
        doc="MiB of entries that the broker keeps for its readers; 0 switches the cache off."),
    Key("entryCachePolicy", "string", PIP430,
        choices=POLICY_NAMES, ours=True,
        doc="Policy that decides which entries stay cached. pip430: as the Pulsar release of pulsarDefaults "
            "decides; magnetar: by the positions of the readers, see docs/explanation/entry_cache.md; pip430-stash: as "
            "the first revision of PIP-430; fifo-ttl: the oldest are evicted first, as before PIP-430."),
    Key("entryCacheTopicQuotaMB", "int", 0, "MiB", low=0, needs=("entryCachePolicy", "magnetar"),
        dynamic=True, ours=True,
        doc="MiB that one topic may hold before its entries are evicted first, if that is more than an "
            "equal share of the cache."),
    Key("entryCachePinnedRatioMax", "double", 1.5, "ratio", low=0, dynamic=True, ours=True,
        doc="Copy entries that come together out of a receive buffer that is more than this many times as "
            "long as they are, so that a cached entry keeps little other memory alive; 0 = never, unless "
            "the policy magnetar needs the space."),
    Key("entryCacheDecisionsKept", "int", 20_000, "events", low=0, high=400_000, dynamic=True, ours=True,
        doc="Newest decisions of the cache that are kept to explain why an entry is cached or missing; 0 = "
            "none."),
    Key("entryCacheSubscriptionMetricsMax", "int", 100, "subscriptions", low=0, high=100_000, ours=True,
        doc="Subscriptions with their own series for cache hits and misses, those with the most reads "
            "first; 0 = none."),
    Key("managedLedgerCacheEvictionTimeThresholdMillisMax", "long", 5000, "ms", low=1,
        needs=("entryCachePolicy", "pip430-stash"), dynamic=True, ours=True,
        doc="Milliseconds that an entry with expected reads stays in the cache."),
    Key("managedLedgerCacheCopyEntries", "bool", False,
        doc="Copy entries into memory of their own. Otherwise they share the receive buffer that they "
            "arrived in, which is cheaper and keeps the whole buffer alive as long as one of them."),
    Key("managedLedgerCacheChargesOverhead", "bool", False, ours=True,
        doc="Count the objects of a cached entry, 510 bytes, against managedLedgerCacheSizeMB as well as its bytes. "
            "Otherwise the cache takes more memory than that: 3.5 times as much with entries of 200 bytes."),
    Key("managedLedgerCacheEvictionWatermark", "double", 0.9, "share", low=0, high=1, dynamic=True,
        doc="Share of the cache that stays filled after an eviction that frees space."),
    Key("managedLedgerCacheEvictionIntervalMs", "long", 10, "ms", low=1,
        doc="Least milliseconds between two evictions by age; at most 50 while few entries come and go."),
    Key("managedLedgerCacheEvictionTimeThresholdMillis", "long", 1000, "ms", low=1, dynamic=True,
        doc="Milliseconds that an entry stays in the cache (its time to live)."),
    Key("cacheEvictionByExpectedReadCount", "bool", True, v40=False,
        doc="Cache entries for the subscriptions that are still going to read them (PIP-430). With false "
            "the older rules hold beside entryCachePolicy: entries before the slowest reader are dropped at "
            "once, reads from storage fill the cache only where other readers follow closely, and no "
            "entries are kept for subscriptions that left. fifo-ttl is meant for these rules; magnetar "
            "still decides by the positions of the readers, among the entries that the rules leave."),
    Key("managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes", "int", 5, "times",
        low=0, needs=("cacheEvictionByExpectedReadCount", "true"), dynamic=True,
        doc="Times that an entry with expected reads is requeued for another time to live."),
    Key("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", "bool", True, v50=False,
        needs=("entryCachePolicy", "pip430"), dynamic=True,
        doc="Also requeue an entry that was read since its last time to live began."),
    Key("managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", "long", None, "ms",
        needs=("cacheEvictionByExpectedReadCount", "true"),
        computed="twice managedLedgerCacheEvictionTimeThresholdMillis", dynamic=True,
        doc="Milliseconds for which new entries are still cached after the last subscription left, so that "
            "one that comes back finds them; 0 or less: none."),
    Key("cacheEvictionByMarkDeletedPosition", "bool", False,
        doc="Count a cursor in the cache at its acknowledged position instead of its read position: in the "
            "ranks that expected reads are made from, and in evictions where expected reads are off."),
    Key("managedLedgerCursorBackloggedThreshold", "long", 1000, "entries", low=1,
        needs=("cacheEvictionByExpectedReadCount", "false"),
        doc="Entries of backlog above which a subscription no longer counts as a reader of the cache."),
    Key("managedLedgerMinimumBacklogCursorsForCaching", "int", 0, "subscriptions", low=0,
        needs=("cacheEvictionByExpectedReadCount", "false"), dynamic=True,
        doc="Number of durable subscriptions with backlogs of similar size at which an entry that one of them "
            "reads from storage is cached for the others; 0: never."),
    Key("managedLedgerMinimumBacklogEntriesForCaching", "int", 1000, "entries", low=0,
        needs=("cacheEvictionByExpectedReadCount", "false"), dynamic=True,
        doc="Entries of backlog at which a subscription counts for "
            "managedLedgerMinimumBacklogCursorsForCaching."),
    Key("managedLedgerMaxBacklogBetweenCursorsForCaching", "int", 1000, "entries", low=0,
        needs=("cacheEvictionByExpectedReadCount", "false"), dynamic=True,
        doc="Entries by which two backlogs may differ and still be of similar size."),
    Key("managedLedgerMaxReadsInFlightSizeInMB", "long", 0, "MiB", v50=COMPUTED, low=0,
        computed="15 % of direct memory, at least dispatcherMaxReadSizeBytes (profile 5.0)",
        doc="MiB of entries that may be on their way from bookies to clients; above it reads wait. 0 means "
            "no limit."),
    Key("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis", "long", 60_000, "ms", low=1,
        doc="Milliseconds that a read waits for its share of managedLedgerMaxReadsInFlightSizeInMB before "
            "it fails."),
    Key("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize", "int", 50_000, "reads", low=1,
        doc="Reads that may wait for their share; a further one fails at once."),
))

RECORD = Section("Access record", (
    Key("entryCacheRecordDirectory", "string", None, ours=True,
        doc="Folder for Parquet files with every event of the entry cache, see docs/reference/access_record.md; a relative "
            "path starts at the working directory. Unset: nothing is recorded. Needs `pip install "
            "'WHEEL[record]'`."),
    Key("entryCacheCountsTopic", "string", None,
        form=(r"(persistent://)?[^/:]+(/[^/]+/[^/]+)?", "the name of a persistent topic"), ours=True,
        doc="Persistent topic to which hits and misses of the cache are published, per topic "
            "and interval, see docs/how-to/audits.md. Unset: nothing is published."),
    Key("entryCacheCountsIntervalSeconds", "int", 60, "s", low=1, ours=True,
        doc="Seconds between two messages of entryCacheCountsTopic."),
    Key("entryCacheRecordSample", "double", 1.0, "share", low=0.000001, high=1, ours=True,
        doc="Share of the entries that are recorded, chosen by a hash; 1 = all, which an exact replay "
            "needs."),
    Key("entryCacheRecordFileMB", "int", 128, "MiB", low=1, ours=True,
        doc="MiB after which a file is completed and the next one begun."),
    Key("entryCacheRecordFileSeconds", "int", 300, "s", low=1, ours=True,
        doc="Seconds after which a file is completed: a crash loses at most the events of this time."),
    Key("entryCacheRecordBufferRows", "int", 65_536, "events", low=1, ours=True,
        doc="Events that may wait to be written, each a few hundred bytes; further ones are dropped and "
            "counted."),
    Key("entryCacheRecordKeptMB", "long", 10_240, "MiB", low=0, ours=True,
        doc="MiB of files that a broker keeps, the oldest removed first; 0 = all."),
))

BOOKIES = Section("Ledgers and bookies", (
    Key("managedLedgerDigestType", "string", "CRC32C", choices=("CRC32C", "CRC32", "MAC", "DUMMY"),
        doc="Digest at the end of every entry of a new ledger, checked when the entry is read; MAC is an "
            "HMAC-SHA1 under managedLedgerPassword."),
    Key("managedLedgerPassword", "string", None,
        doc="Password of new ledgers: bookies refuse requests without it, and it is the key of the MAC "
            "digest."),
    Key("managedLedgerDefaultEnsembleSize", "int", None, "bookies", low=1,
        computed="2, or as many as bookieAddress names where these are fewer",
        doc="Bookies that the entries of a ledger are spread over."),
    Key("managedLedgerDefaultWriteQuorum", "int", None, "bookies", low=1,
        computed="2, or managedLedgerDefaultEnsembleSize where that is less",
        doc="Bookies that get each entry."),
    Key("managedLedgerDefaultAckQuorum", "int", None, "bookies", low=1,
        computed="2, or managedLedgerDefaultWriteQuorum where that is less",
        doc="Bookies whose answers confirm an entry."),
    Key("bookkeeper_opportunisticStriping", "bool", False,
        doc="Let a new ledger have fewer bookies than managedLedgerDefaultEnsembleSize while no more are "
            "available, but at least managedLedgerDefaultWriteQuorum."),
    Key("bookkeeperEnableStickyReads", "bool", True,
        doc="Read all entries of a ledger from one bookie while it answers, so that only this one reads "
            "ahead and caches; needs an ensemble as large as the write quorum."),
    Key("bookkeeperClientSpeculativeReadTimeoutInMillis", "int", 0, "ms", low=0,
        doc="Milliseconds without an answer after which a read also asks the next bookie; 0: never."),
    Key("bookkeeperClientHealthCheckEnabled", "bool", True,
        doc="Put bookies that fail repeatedly into quarantine: new ledgers avoid them."),
    Key("bookkeeperClientHealthCheckErrorThresholdPerInterval", "long", 5, "errors", low=1,
        doc="Failed adds within bookkeeperClientHealthCheckIntervalSeconds that put a bookie into "
            "quarantine."),
    Key("bookkeeperClientHealthCheckIntervalSeconds", "long", 60, "s", low=1,
        doc="Seconds within which these failures are counted."),
    Key("bookkeeperClientHealthCheckQuarantineTimeInSeconds", "long", 1800, "s", low=0,
        doc="Seconds that a bookie stays in quarantine."),
    Key("bookkeeperClientTimeoutInSeconds", "long", 30, "s", low=1,
        doc="Seconds after which an unanswered request to a bookie has failed."),
    Key("byteBufAllocatorSizeInitial", "int", 0, "bytes", low=0, high=64 * MIB, ours=True,
        doc="Bytes that the first read of a connection to a bookie takes at most; the next reads follow what "
            "arrives. 0: 64 KiB where another size is given, else the event loop decides."),
    Key("byteBufAllocatorSizeMin", "int", 0, "bytes", low=0, high=64 * MIB, ours=True,
        doc="Least bytes of such a read; 0: 64 KiB where another size is given."),
    Key("byteBufAllocatorSizeMax", "int", 0, "bytes", low=0, high=64 * MIB, ours=True,
        doc="Most bytes of such a read; 0: 1 MiB where another size is given."),
    Key("managedLedgerReadEntryTimeoutSeconds", "long", 0, "s", low=0,
        doc="Seconds after which a read for a subscription has failed; 0 leaves it to "
            "bookkeeperClientTimeoutInSeconds."),
    Key("managedLedgerAddEntryTimeoutSeconds", "long", 0, "s", low=0, used=False,
        doc="Seconds after which a publish that no bookie confirmed has failed; 0 leaves it to "
            "bookkeeperClientTimeoutInSeconds."),
))

# fmt: on
