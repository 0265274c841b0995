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
            "minorCompactionThreshold",
            "double",
            0.2,
            "A minor compaction takes entry logs of which less than this share is alive; 0 switches it off.",
            low=0,
            high=1,
        ),
        Key(
            "minorCompactionInterval",
            "long",
            3600,
            "Seconds between two minor compactions; 0 switches them off.",
            low=0,
        ),
        Key(
            "majorCompactionThreshold",
            "double",
            0.5,
            "A major compaction takes entry logs of which less than this share is alive; 0 switches it off.",
            low=0,
            high=1,
        ),
        Key(
            "majorCompactionInterval",
            "long",
            86400,
            "Seconds between two major compactions; 0 switches them off.",
            low=0,
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
            "Share of a ledger directory's disk above which the bookie becomes read-only.",
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
            "Share below which a bookie that a full disk made read-only takes adds again.",
            low=0.001,
            high=1,
            computed="diskUsageThreshold",
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
