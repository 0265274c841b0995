"""The bookie's keys: BookKeeper's names, with the defaults of the file that Pulsar ships.

Data only; `bookie_stub.config.settings` turns the values into what the rooms take. A key stands in a section only
if the bookie reads it; the others that Pulsar's bookkeeper.conf has are accepted and named once.
"""

from __future__ import annotations

from bookie_stub.config.tls import TLS
from bookie_stub.config.upkeep_keys import COLLECTION, DISK
from settings.keys import Key, KeyTable, Section

PORT_MAX = 65535

SERVER: Section = (
    "Server",
    [
        Key(
            "magnetarDataDirectory",
            "string",
            "data",
            "Directory for everything kept on disk; journal and ledgers lie below it unless they have"
            " directories of their own. A relative path starts at the working directory.",
            ours=True,
        ),
        Key(
            "bookiePort", "int", 3181, "TCP port of the bookie; 0 takes any free port.", low=0, high=PORT_MAX
        ),
        Key(
            "bindAddress",
            "string",
            "0.0.0.0",
            "Address that both ports listen on (BookKeeper names a network card, listeningInterface,"
            " instead).",
            ours=True,
        ),
        Key(
            "advertisedAddress",
            "string",
            None,
            "Host name under which brokers find this bookie; part of its identity, which its directories"
            " remember.",
            computed="the machine's host name",
        ),
        Key(
            "bookieId",
            "string",
            None,
            "Identity of the bookie, remembered by its directories.",
            computed="advertisedAddress:bookiePort",
        ),
        Key(
            "prometheusStatsHttpPort",
            "int",
            8000,
            "TCP port of the bookie's `/metrics`; 0 takes any free port.",
            low=0,
            high=PORT_MAX,
        ),
        Key(
            "nettyMaxFrameSizeBytes",
            "int",
            5 * 1024 * 1024 + 10 * 1024,
            "Bytes of the largest request; the broker's maxMessageSize and 10 KiB on top.",
            low=1024,
        ),
        Key(
            "maxBatchReadSize",
            "int",
            5 * 1024 * 1024,
            "Bytes of the largest answer to a batch read, whatever the request allows.",
            low=1024,
        ),
        Key(
            "numReadWorkerThreads",
            "int",
            8,
            "Threads for reads that need the disk; they start when such reads wait.",
            low=1,
        ),
        Key(
            "forceReadOnlyBookie",
            "bool",
            False,
            "Take no adds but those of a recovery; reads and fences go on.",
        ),
    ],
)

METADATA: Section = (
    "Metadata store",
    [
        Key(
            "metadataServiceUri",
            "string",
            None,
            "Where the bookie registers, so that BookKeeper's clients find it: `zk+hierarchical://host:port/path`,"
            " `;` between several hosts. Needs the package kazoo (`pip install magnetar[zookeeper]`).",
            computed="zkServers and zkLedgersRootPath; without zkServers the bookie registers nowhere",
        ),
        Key(
            "zkServers",
            "string",
            "",
            "ZooKeeper as host:port, comma between several; what metadataServiceUri is made from where it is unset.",
        ),
        Key(
            "zkLedgersRootPath",
            "string",
            "/ledgers",
            "Path in ZooKeeper that goes with zkServers.",
        ),
        Key(
            "zkTimeout",
            "int",
            30_000,
            "Milliseconds of the session with ZooKeeper: how long a start waits for it, and how long the place of a"
            " bookie that died is kept.",
            low=1,
        ),
    ],
)

JOURNAL: Section = (
    "Journal",
    [
        Key(
            "journalDirectories",
            "list",
            None,
            "Directories of journals; each ledger writes to one of them, by its id. Their number and order stay what they"
            " were when the bookie began.",
            computed="journalDirectory",
        ),
        Key(
            "journalDirectory",
            "string",
            None,
            "Directory of the journal, where every entry is written and synced before it is confirmed.",
            computed="magnetarDataDirectory/bookie/journal",
        ),
        Key(
            "journalSyncData",
            "bool",
            True,
            "Confirm entries only after fsync. Without it a crash of the machine loses confirmed entries;"
            " the bookie says so at its start.",
        ),
        Key(
            "journalMaxSizeMB",
            "long",
            2048,
            "MiB after which the journal goes on to a new file.",
            low=1,
        ),
        Key(
            "journalMaxBackups",
            "int",
            5,
            "Journal files that are kept although a checkpoint made them superfluous.",
            low=0,
        ),
        Key(
            "journalPreAllocSizeMB",
            "int",
            16,
            "MiB that a journal file grows by ahead of the writes.",
            low=1,
        ),
        Key(
            "journalAlignmentSize",
            "int",
            4096,
            "Bytes to whose multiple every group is filled up; a power of two from 512.",
            low=512,
        ),
        Key(
            "journalMaxGroupWaitMSec",
            "long",
            1,
            "Milliseconds that the oldest entry of a group waits for others before the group is written and synced;"
            " what waited while the last group was synced has waited already.",
            low=0,
        ),
        Key(
            "journalBufferedWritesThreshold",
            "long",
            512 * 1024,
            "Bytes of a group that is not waited with any longer.",
            low=1,
        ),
        Key(
            "journalBufferedEntriesThreshold",
            "long",
            0,
            "Entries of a group that is not waited with any longer; 0: any number.",
            low=0,
        ),
        Key(
            "journalFlushWhenQueueEmpty",
            "bool",
            True,
            "Do not wait for others: a group is what has come while the last one was synced. With false the disk idles"
            " for up to journalMaxGroupWaitMSec before a group. BookKeeper's default is false.",
        ),
        Key(
            "skipReplayJournalInvalidRecord",
            "bool",
            False,
            "At start, give damaged records of the journal up although acknowledged ones follow, instead of"
            " stopping.",
        ),
        Key(
            "dataIntegrityCheckingEnabled",
            "bool",
            True,
            "When a start may have lost confirmed entries (a crash of the machine without journalSyncData, skipped"
            " records of the journal, or a journal that is cut), fence every ledger and answer what it does not have as"
            " unknown, so that no recovery takes a lost entry for one that never was.",
        ),
    ],
)

STORAGE: Section = (
    "Ledger storage",
    [
        Key(
            "ledgerDirectories",
            "list",
            None,
            "Directories of entry logs and indexes; ledgers are spread over them by their id, so their number and order"
            " stay what they were when the bookie began.",
            computed="magnetarDataDirectory/bookie/ledgers",
        ),
        Key(
            "indexDirectories",
            "list",
            None,
            "Directories of the indexes, as many as ledgerDirectories.",
            computed="ledgerDirectories",
        ),
        Key(
            "logSizeLimit",
            "long",
            1 << 30,
            "Bytes after which entries go on to a new entry log.",
            low=1024,
        ),
        Key(
            "flushInterval",
            "long",
            60_000,
            "Milliseconds between two checkpoints: write cache to entry log, sync, index, log mark.",
            low=1,
        ),
        Key(
            "dbStorage_writeCacheMaxSizeMb",
            "long",
            None,
            "MiB of entries that wait in memory for their way to the entry log.",
            low=1,
            computed="a quarter of direct memory",
        ),
        Key(
            "dbStorage_maxThrottleTimeMs",
            "long",
            10_000,
            "Milliseconds that an add waits for room in the write cache before it is refused.",
            low=1,
        ),
        Key(
            "dbStorage_readAheadCacheMaxSizeMb",
            "long",
            None,
            "MiB of entries that were read from entry logs and wait for their readers; 0: none are kept and"
            " nothing is read ahead.",
            low=0,
            computed="a quarter of direct memory",
        ),
        Key(
            "readCachePolicy",
            "string",
            "ring",
            "What leaves a full read cache: `ring`, as BookKeeper, the oldest of two or more segments as a"
            " whole; `lru` what was not used for longest; `served-first` what was already served.",
            choices=("ring", "lru", "served-first"),
            ours=True,
        ),
        Key(
            "dbStorage_readAheadCacheBatchSize",
            "int",
            1000,
            "Entries that are read ahead when one has to be read from an entry log.",
            low=0,
        ),
        Key(
            "dbStorage_readAheadCacheBatchBytesSize",
            "long",
            -1,
            "Bytes after which reading ahead stops; -1 sets no limit but half of the read cache and 16 MiB.",
            low=-1,
        ),
        Key(
            "readAheadStopsAtGap",
            "bool",
            True,
            "Stop reading ahead where an entry id is missing, as BookKeeper does since 4.16. Without it,"
            " reading ahead also serves ledgers of which this bookie has every second or third entry only.",
            ours=True,
        ),
    ],
)

UNUSED = """
allowEphemeralPorts allowLoopback=false|true allowMultipleDirsUnderSameDiskPartition
allowShadedLedgerManagerFactoryClass allowStorageExpansion auditorPeriodicBookieCheckInterval=86400
auditorPeriodicCheckInterval=604800 autoRecoveryDaemonEnabled=true bookieAuthProviderFactoryClass
bookieDeathWatchInterval=1000 byteBufAllocatorSizeInitial byteBufAllocatorSizeMax byteBufAllocatorSizeMin
compactionMaxOutstandingRequests=100000 compactionRate=1000
dbStorage_rocksDB_blockCacheSize
dbStorage_rocksDB_blockSize=4096|65536 dbStorage_rocksDB_bloomFilterBitsPerKey=10
dbStorage_rocksDB_maxSizeInLevel1MB=256 dbStorage_rocksDB_numFilesInLevel0=4 dbStorage_rocksDB_numLevels=-1
dbStorage_rocksDB_sstSizeInMB=4|64 dbStorage_rocksDB_writeBufferSizeMB=4|64 disableServerSocketBind

enableBusyWait=false enableLocalTransport enableStatistics ensemblePlacementPolicy
entryLogFilePreallocationEnabled=true entryLogPerLedgerEnabled extraServerComponents
fileInfoFormatVersionToWrite=0 flushEntrylogBytes=33554432
gcEntryLogMetadataCacheEnabled=false gcEntryLogMetadataCachePath gcOverreplicatedLedgerMaxConcurrentRequests=1000
httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer httpServerEnabled=false httpServerPort=8000
journalAdaptiveGroupWrites=true

journalFormatVersionToWrite=5 journalRemoveFromPageCache=true
journalWriteBufferSizeKB=64 journalWriteData=true ledgerManagerFactoryClass ledgerManagerType
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage listeningInterface
localScrubInterval=0 localScrubRateLimit=60
lostBookieRecoveryDelay=0
maxPendingAddRequestsPerThread=10000 maxPendingReadRequestsPerThread=2500
minUsableSizeForEntryLogCreation minUsableSizeForHighPriorityWrites minUsableSizeForIndexFileCreation=1073741824
numAddWorkerThreads=0 numHighPriorityWorkerThreads=8 numJournalCallbackThreads=8 numLongPollWorkerThreads
openFileLimit=0 openLedgerRereplicationGracePeriod=30000 pageLimit=0 pageSize persistBookieStatusEnabled
readBufferSizeBytes=4096 readOnlyModeEnabled=true readWorkerThreadsThrottlingEnabled=true
reorderReadSequenceEnabled=true reppDnsResolverClass=org.apache.pulsar.zookeeper.ZkBookieRackAffinityMapping
requestTimerNumTicks requestTimerTickDurationMs rereplicationEntryBatchSize=100 serverSockKeepalive
serverTcpLinger serverTcpNoDelay=true shadedLedgerManagerFactoryClassPrefix skipListArenaChunkSize
skipListArenaMaxAllocSize skipListSizeLimit sortedLedgerStorageEnabled
statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider stickyReadSEnabled=true
tlsProvider tlsTrustStorePasswordPath
useHostNameAsBookieID=false useShortHostName useTransactionalCompaction=true|false useV2WireProtocol=true
writeBufferSizeBytes=65536 zkEnableSecurity=false zkRetryBackoffMaxMs zkRetryBackoffStartMs
"""

BOOKIE_KEYS = KeyTable(
    "bookkeeper", (SERVER, TLS, METADATA, JOURNAL, STORAGE, COLLECTION, DISK), unused=UNUSED
)
