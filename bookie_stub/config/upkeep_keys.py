"""The bookie's keys for what goes on beside adds and reads: garbage collection, compaction, the disks' room.

Data only, as `config_keys`.
"""

from __future__ import annotations

from settings.keys import Key, Section

COLLECTION: Section = (
    "Garbage collection",
    [
        Key(
            "gcWaitTime",
            "long",
            900_000,
            "Milliseconds between two rounds of garbage collection: ledgers that do not exist in the metadata store any"
            " more are deleted, entry logs without living ledgers removed, mostly dead ones compacted.",
            standalone=300_000,
            low=1,
        ),
        Key(
            "verifyMetadataOnGC",
            "bool",
            True,
            "Ask the metadata store for a ledger by name before it is deleted, and delete it only when the answer is"
            " that there is none (BookKeeper's default is false).",
        ),
        Key(
            "gcOverreplicatedLedgerWaitTime",
            "long",
            86_400_000,
            "Milliseconds between two looks for closed ledgers that have entries here although no ensemble names this"
            " bookie any more; their entries are given up. 0 and less: no look.",
            low=-1,
        ),
        Key(
            "gcMetadataOpRateLimit",
            "int",
            1000,
            "Ledgers in a second that the metadata store is asked for in such a look.",
            low=1,
        ),
        Key(
            "minorCompactionThreshold",
            "double",
            0.2,
            "A minor compaction takes entry logs of which less than this share is alive; 0 and less switch it off.",
            low=-1,
            high=1,
        ),
        Key(
            "minorCompactionInterval",
            "long",
            3600,
            "Seconds between two minor compactions; 0 and less switch them off.",
            low=-1,
        ),
        Key(
            "minorCompactionMaxTimeMillis",
            "long",
            -1,
            "Milliseconds after which a minor compaction begins with no further log; 0 and less set no limit.",
            low=-1,
        ),
        Key(
            "majorCompactionThreshold",
            "double",
            0.5,
            "A major compaction takes entry logs of which less than this share is alive; 0 and less switch it off.",
            low=-1,
            high=1,
        ),
        Key(
            "majorCompactionInterval",
            "long",
            86400,
            "Seconds between two major compactions; 0 and less switch them off.",
            low=-1,
        ),
        Key(
            "majorCompactionMaxTimeMillis",
            "long",
            -1,
            "Milliseconds after which a major compaction begins with no further log; 0 and less set no limit.",
            low=-1,
        ),
        Key(
            "forceAllowCompaction",
            "bool",
            True,
            "A compaction that its interval switches off runs when somebody asks for it.",
        ),
        Key(
            "useTargetEntryLogSizeForGc",
            "bool",
            False,
            "Take what is alive as a share of logSizeLimit where a log is smaller, so that small logs are put together.",
        ),
        Key(
            "entryLocationCompactionInterval",
            "long",
            -1,
            "Seconds between two compactions of the location index, and up to as many again, drawn by lot; 0 and less:"
            " none but those that are asked for.",
            low=-1,
        ),
        Key(
            "isThrottleByBytes",
            "bool",
            False,
            "Keep compactions under compactionRateByBytes instead of compactionRateByEntries.",
        ),
        Key(
            "compactionRateByEntries",
            "int",
            1000,
            "Entries that a compaction copies in a second at most; 0 sets no limit.",
            low=0,
        ),
        Key(
            "compactionRateByBytes",
            "int",
            1_000_000,
            "Bytes that a compaction copies in a second at most, with isThrottleByBytes; 0 sets no limit.",
            low=0,
        ),
        Key(
            "isForceGCAllowWhenNoSpace",
            "bool",
            False,
            "When a disk passes a threshold, collect garbage at once instead of leaving compactions out.",
        ),
    ],
)

DISK: Section = (
    "Disk usage",
    [
        Key(
            "diskUsageThreshold",
            "double",
            0.95,
            "Share of a ledger directory's disk, or of its indexes', above which the directory is full.",
            standalone=0.99,
            low=0.001,
            high=1,
        ),
        Key(
            "diskUsageWarnThreshold",
            "double",
            0.9,
            "Share above which there are no major compactions, because they need room first.",
            standalone=0.99,
            low=0.001,
            high=1,
        ),
        Key(
            "diskUsageLwmThreshold",
            "double",
            None,
            "Share below which a directory that was full takes adds again.",
            low=0.001,
            high=1,
            computed="diskUsageThreshold",
        ),
        Key(
            "readOnlyModeOnAnyDiskFullEnabled",
            "bool",
            True,
            "The bookie is read-only as soon as one ledger directory is full. Without it, only adds to ledgers that are at"
            " home in a full directory are refused, and the bookie is read-only when all are full.",
        ),
        Key(
            "diskCheckInterval",
            "int",
            10_000,
            "Milliseconds between two looks at the disks.",
            low=1,
        ),
    ],
)
