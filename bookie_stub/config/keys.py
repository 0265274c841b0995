"""The table of the bookie's keys, each with every fact about it.

Names are BookKeeper's, defaults those of the file that Pulsar ships. The columns are explained at
`foundation.settings.keys.Key`. `settings.py` turns the values into the settings that the bookie's rooms take; computed
values stand in `rules.py`; names without a row here in `unused_keys.tsv`.
"""

from __future__ import annotations

from pathlib import Path

from foundation.settings.addresses import HOST_FORM, LOOPBACK
from foundation.settings.keys import PORT_MAX, Key, KeyTable, Section
from foundation.settings.unused import UnusedKeys
from foundation.units import KIB, MIB

TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
PEM = "PEM"

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

SERVER = Section("Server", (
    Key("magnetarDataDirectory", "string", "data", ours=True,
        doc="Directory for everything kept on disk; journal and ledgers lie below it unless they have "
            "directories of their own. A relative path starts at the working directory."),
    Key("bookiePort", "int", 3181, "port", low=0, high=PORT_MAX,
        doc="TCP port of the bookie; 0 takes any free port."),
    Key("bindAddress", "string", LOOPBACK, ours=True,
        doc="Address that both ports listen on (BookKeeper names a network card, listeningInterface, "
            "instead, and listens on every address without it). There is no authentication, so a start with "
            "more than the loopback logs a warning."),
    Key("advertisedAddress", "string", None, form=HOST_FORM,
        computed="the machine's host name; localhost if bindAddress is the loopback",
        doc="Host name under which brokers find this bookie; where it is set it is part of its identity, "
            "which its directories remember."),
    Key("bookieId", "string", None,
        computed="advertisedAddress:bookiePort; the machine's host name where that is unset",
        doc="Identity of the bookie, remembered by its directories."),
    Key("prometheusStatsHttpPort", "int", 8000, "port", low=0, high=PORT_MAX,
        doc="TCP port of the bookie's `/metrics`, which it registers in ZooKeeper for the brokers' consoles; 0 takes "
            "any free port and registers none."),
    Key("nettyMaxFrameSizeBytes", "int", 5 * MIB + 10 * KIB, "bytes", low=1024,
        doc="Bytes of the largest request; the broker's maxMessageSize and 10 KiB on top."),
    Key("byteBufAllocatorSizeInitial", "int", 0, "bytes", low=0, high=64 * MIB,
        doc="Bytes that the first read of a connection takes at most; the next reads follow what arrives. 0: 64 KiB "
            "where another size is given, else each read takes 256 KiB at most."),
    Key("byteBufAllocatorSizeMin", "int", 0, "bytes", low=0, high=64 * MIB,
        doc="Least bytes of such a read; 0: 64 KiB where another size is given."),
    Key("byteBufAllocatorSizeMax", "int", 0, "bytes", low=0, high=64 * MIB,
        doc="Most bytes of such a read; 0: 1 MiB where another size is given."),
    Key("maxBatchReadSize", "int", 5 * MIB, "bytes", low=1024,
        doc="Bytes of the largest answer to a batch read, even if the request allows more."),
    Key("numReadWorkerThreads", "int", 8, "threads", low=1,
        doc="Threads for reads that need the disk; they start when such reads wait."),
    Key("forceReadOnlyBookie", "bool", False,
        doc="Refuse all adds but those of a recovery; reads and fences go on."),
))

TLS = Section("TLS", (
    Key("tlsProviderFactoryClass", "string", "", choices=("", TLS_FACTORY), asks_for="TLS",
        doc=f"`{TLS_FACTORY}` offers TLS on the data port to clients that ask "
            "for it; empty: no TLS."),
    Key("tlsKeyStoreType", "string", "JKS", choices=("JKS", "PKCS12", PEM),
        doc="Form of tlsKeyStore. Only PEM is read here."),
    Key("tlsKeyStore", "string", "", asks_for="TLS",
        doc="File with the private key."),
    Key("tlsKeyStorePasswordPath", "string", "",
        doc="File whose text is the password of the private key."),
    Key("tlsCertificatePath", "string", "", asks_for="TLS",
        doc="File with the certificate, and with the certificates that vouch for it."),
    Key("tlsClientAuthentication", "bool", False, asks_for="TLS",
        doc="Ask clients for a certificate, and close connections without one that tlsTrustStore vouches "
            "for."),
    Key("tlsTrustStoreType", "string", "JKS", choices=("JKS", "PKCS12", PEM),
        doc="Form of tlsTrustStore. Only PEM is read here."),
    Key("tlsTrustStore", "string", "", asks_for="TLS",
        doc="File with the certificates that vouch for clients."),
))

METADATA = Section("Metadata store", (
    Key("metadataServiceUri", "string", None,
        computed="zkServers and zkLedgersRootPath; without zkServers the bookie registers nowhere",
        doc="Metadata store in which the bookie registers, so that BookKeeper's clients find it: "
            "`zk+hierarchical://host:port/path`, `;` between several hosts. Needs the package kazoo (`pip "
            "install WHEEL[zookeeper]`)."),
    Key("zkServers", "string", "",
        doc="ZooKeeper as host:port, comma between several; metadataServiceUri is made from it where that "
            "is unset."),
    Key("zkLedgersRootPath", "string", "/ledgers",
        doc="Path in ZooKeeper that goes with zkServers."),
    Key("zkTimeout", "int", 30_000, "ms", low=1,
        doc="Milliseconds of the session with ZooKeeper: a start waits as long for it, and a crashed bookie "
            "stays registered as long."),
))

JOURNAL = Section("Journal", (
    Key("journalDirectories", "list", None, computed="journalDirectory",
        doc="Directories of journals; each ledger writes to one of them, by its id. Their number and order "
            "must stay as they were when the bookie began."),
    Key("journalDirectory", "string", None, computed="magnetarDataDirectory/bookie/journal",
        doc="Directory of the journal, to which every entry is written and synced before it is confirmed."),
    Key("journalSyncData", "bool", True,
        doc="Confirm entries only after fsync. Otherwise a crash of the machine loses confirmed entries, as "
            "the log says at each start."),
    Key("journalMaxSizeMB", "long", 2048, "MiB", low=1,
        doc="MiB after which the journal goes on to a new file."),
    Key("journalMaxBackups", "int", 5, "files", low=0,
        doc="Journal files that are kept although a checkpoint has made them superfluous; none on a disk above "
            "diskUsageWarnThreshold, or with less free than they take."),
    Key("journalPreAllocSizeMB", "int", 16, "MiB", low=1,
        doc="MiB that a journal file grows by ahead of the writes; 64 KiB on a disk that is short."),
    Key("journalAlignmentSize", "int", 4096, "bytes", low=512,
        doc="Bytes to whose multiple every group is padded; a power of two from 512."),
    Key("journalMaxGroupWaitMSec", "long", 1, "ms", low=0,
        doc="Milliseconds that the oldest entry of a group waits for others before the group is written and "
            "synced; its wait for the last group's sync counts."),
    Key("journalBufferedWritesThreshold", "long", 512 * KIB, "bytes", low=1,
        doc="Bytes at which a group is written without further waiting."),
    Key("journalBufferedEntriesThreshold", "long", 0, "entries", low=0,
        doc="Entries at which a group is written without further waiting; 0: any number."),
    Key("journalFlushWhenQueueEmpty", "bool", True,
        doc="Write a group as soon as the last one is synced, with the entries that came meanwhile. With "
            "false the disk idles for up to journalMaxGroupWaitMSec before a group. BookKeeper's default is "
            "false."),
    Key("skipReplayJournalInvalidRecord", "bool", False,
        doc="At start, skip damaged records of the journal although acknowledged ones follow, instead of "
            "stopping."),
    Key("dataIntegrityCheckingEnabled", "bool", True,
        doc="When a start may have lost confirmed entries (a crash of the machine without journalSyncData, "
            "skipped records of the journal, or a journal that is cut), fence every ledger and answer "
            "missing entries as unknown, so that no recovery takes a lost entry for one that never existed."),
))

STORAGE = Section("Ledger storage", (
    Key("ledgerDirectories", "list", None, computed="magnetarDataDirectory/bookie/ledgers",
        doc="Directories of entry logs and indexes; ledgers are spread over them by their id, so their "
            "number and order must stay as they were when the bookie began."),
    Key("indexDirectories", "list", None, computed="ledgerDirectories",
        doc="Directories of the indexes, as many as ledgerDirectories."),
    Key("logSizeLimit", "long", 1024 * MIB, "bytes", low=1024,
        doc="Bytes after which entries go on to a new entry log."),
    Key("flushInterval", "long", 60_000, "ms", low=1,
        doc="Milliseconds between two checkpoints: write cache to entry log, sync, index, log mark."),
    Key("dbStorage_writeCacheMaxSizeMb", "long", None, "MiB", low=1, computed="a quarter of direct memory",
        doc="MiB of entries that wait in memory to be written to the entry log."),
    Key("dbStorage_maxThrottleTimeMs", "long", 10_000, "ms", low=1,
        doc="Milliseconds that an add waits for space in the write cache before it is refused."),
    Key("dbStorage_readAheadCacheMaxSizeMb", "long", None, "MiB", low=0,
        computed="a quarter of direct memory",
        doc="MiB of entries from entry logs that are kept for coming reads; 0: none are kept and nothing is "
            "read ahead."),
    Key("readCachePolicy", "string", "ring", choices=("ring", "lru", "served-first"), ours=True,
        doc="Order of eviction from a full read cache: `ring`, as BookKeeper, the oldest of two or more "
            "segments as a whole; `lru` the entries unused for longest; `served-first` the entries that "
            "were already served."),
    Key("dbStorage_readAheadCacheBatchSize", "int", 1000, "entries", low=0,
        doc="Entries that are read ahead when one has to be read from an entry log."),
    Key("dbStorage_readAheadCacheBatchBytesSize", "long", -1, "bytes", low=-1,
        doc="Bytes after which reading ahead stops; -1 sets no limit but half of the read cache and 16 MiB."),
    Key("readAheadStopsAtGap", "bool", True, ours=True,
        doc="Stop reading ahead at a missing entry id, as BookKeeper does since 4.16. Otherwise reading "
            "ahead also serves ledgers of which this bookie has only every second or third entry."),
))

COLLECTION = Section("Garbage collection", (
    Key("gcWaitTime", "long", 900_000, "ms", standalone=300_000, low=1,
        doc="Milliseconds between two rounds of garbage collection, which deletes ledgers that the metadata "
            "store no longer has, removes entry logs without living ledgers, and compacts mostly dead ones."),
    Key("verifyMetadataOnGC", "bool", True,
        doc="Ask the metadata store for a ledger by name before it is deleted, and delete it only if it "
            "does not exist there (BookKeeper's default is false)."),
    Key("gcOverreplicatedLedgerWaitTime", "long", 86_400_000, "ms", low=-1,
        doc="Milliseconds between two searches for closed ledgers that have entries here although no "
            "ensemble names this bookie any more; these entries are removed. 0 and less: no search."),
    Key("gcMetadataOpRateLimit", "int", 1000, "ledgers/s", low=1,
        doc="Ledgers per second that such a search asks the metadata store for."),
    Key("minorCompactionThreshold", "double", 0.2, "share", low=-1, high=1,
        doc="A minor compaction takes entry logs of which less than this share is alive; 0 and less switch "
            "it off."),
    Key("minorCompactionInterval", "long", 3600, "s", low=-1,
        doc="Seconds between two minor compactions; 0 and less switch them off."),
    Key("minorCompactionMaxTimeMillis", "long", -1, "ms", low=-1,
        doc="Milliseconds after which a minor compaction begins with no further log; 0 and less set no "
            "limit."),
    Key("majorCompactionThreshold", "double", 0.5, "share", low=-1, high=1,
        doc="A major compaction takes entry logs of which less than this share is alive; 0 and less switch "
            "it off."),
    Key("majorCompactionInterval", "long", 86_400, "s", low=-1,
        doc="Seconds between two major compactions; 0 and less switch them off."),
    Key("majorCompactionMaxTimeMillis", "long", -1, "ms", low=-1,
        doc="Milliseconds after which a major compaction begins with no further log; 0 and less set no "
            "limit."),
    Key("forceAllowCompaction", "bool", True,
        doc="Run a compaction on request even if its interval switches it off."),
    Key("useTargetEntryLogSizeForGc", "bool", False,
        doc="Take the living bytes as a share of logSizeLimit where a log is smaller, so that small logs "
            "are merged."),
    Key("entryLocationCompactionInterval", "long", -1, "s", low=-1,
        doc="Seconds between two compactions of the location index, plus a random time of up to as long; 0 "
            "and less: only on request."),
    Key("isThrottleByBytes", "bool", False,
        doc="Keep compactions under compactionRateByBytes instead of compactionRateByEntries."),
    Key("compactionRateByEntries", "int", 1000, "entries/s", low=0,
        doc="Entries that a compaction copies per second at most; 0 sets no limit."),
    Key("compactionRateByBytes", "int", 1_000_000, "bytes/s", low=0,
        doc="Bytes that a compaction copies per second at most, with isThrottleByBytes; 0 sets no limit."),
    Key("isForceGCAllowWhenNoSpace", "bool", False,
        doc="When a disk passes a threshold, collect garbage at once, and compact after each deletion of ledgers, instead "
            "of leaving compactions out."),
))

DISK = Section("Disk usage", (
    Key("diskUsageThreshold", "double", 0.95, "share", standalone=0.99, low=0.001, high=1,
        doc="Share of a ledger directory's disk, or of its indexes', above which the directory is full."),
    Key("diskUsageWarnThreshold", "double", 0.9, "share", standalone=0.99, low=0.001, high=1,
        doc="Share above which there are no major compactions, because they need free space first."),
    Key("diskUsageLwmThreshold", "double", None, "share", low=0.001, high=1, computed="diskUsageThreshold",
        doc="Share below which a directory that was full takes adds again."),
    Key("readOnlyModeOnAnyDiskFullEnabled", "bool", True,
        doc="Make the bookie read-only as soon as one ledger directory is full. Otherwise only adds to "
            "ledgers of a full directory are refused, and the bookie is read-only when all directories are "
            "full."),
    Key("diskCheckInterval", "int", 10_000, "ms", low=1,
        doc="Milliseconds between two checks of the disks."),
))

REREPLICATION = Section("Re-replication", (
    Key("autoRecoveryDaemonEnabled", "bool", True,
        doc="Run auditor and replication worker in the process of a bookie that registers in a metadata store. "
            "`magnetar bookie autorecovery` runs them in a process of their own."),
    Key("lostBookieRecoveryDelay", "int", 0, "s", low=0,
        doc="Seconds that the auditor waits for a lost bookie to come back before its ledgers are copied; "
            "several lost bookies are not waited for. The first auditor of a cluster stores the value in the metadata "
            "store, and that one counts from then on."),
    Key("auditorPeriodicBookieCheckInterval", "long", 86_400, "s", low=0,
        doc="Seconds between two searches of all ledgers for bookies that are not registered; 0: only when "
            "a bookie is lost."),
    Key("auditorPeriodicCheckInterval", "long", 604_800, "s", low=0,
        doc="Seconds between two checks of all ledgers, which read the first and the last entry of each "
            "copy; 0: none."),
    Key("openLedgerRereplicationGracePeriod", "long", 30_000, "ms", low=0,
        doc="Milliseconds that a writer has to replace a lost bookie itself, before its ledger is fenced, "
            "closed and copied."),
    Key("rereplicationEntryBatchSize", "long", 100, "entries", low=1,
        doc="Entries that are read and copied at a time."),
    Key("replicationRateByBytes", "int", 32 * MIB, "bytes/s", low=-1,
        doc="Bytes per second that a process copies at most; 0 and less set no limit, which is BookKeeper's "
            "default."),
    Key("rwRereplicateBackoffMs", "int", 5000, "ms", low=1,
        doc="Milliseconds after the first failed attempt at a ledger until the next one; they double with "
            "each attempt."),
    Key("lockReleaseOfFailedLedgerGracePeriod", "long", 300_000, "ms", low=1,
        doc="Milliseconds between two attempts at a ledger at most."),
))

# fmt: on

BOOKIE_KEYS = KeyTable(
    "bookkeeper",
    (SERVER, TLS, METADATA, JOURNAL, STORAGE, COLLECTION, DISK, REREPLICATION),
    unused=UnusedKeys(Path(__file__).with_name("unused_keys.tsv")),
)
