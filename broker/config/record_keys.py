"""Keys of the access record: what the cache's events are written to, and how much of it."""

from __future__ import annotations

from settings.keys import Key, Section

RECORD: Section = (
    "Access record",
    [
        Key(
            "entryCacheRecordDirectory",
            "string",
            None,
            "Folder for Parquet files with every event of the entry cache, see docs/record.md; a relative path starts at"
            " the working directory. Unset: nothing is recorded. Needs `pip install 'magnetar[record]'`.",
            ours=True,
        ),
        Key(
            "entryCacheCountsTopic",
            "string",
            None,
            "Persistent topic of this broker to which hits and misses of the cache are published, per topic and"
            " interval, see docs/audits.md. Unset: nothing is published.",
            ours=True,
        ),
        Key(
            "entryCacheCountsIntervalSeconds",
            "int",
            60,
            "Seconds between two messages of entryCacheCountsTopic.",
            low=1,
            ours=True,
        ),
        Key(
            "entryCacheRecordSample",
            "double",
            1.0,
            "Part of the entries that are recorded, chosen by a hash; 1 = all, which an exact replay needs.",
            low=0.000001,
            high=1,
            ours=True,
        ),
        Key(
            "entryCacheRecordFileMB",
            "int",
            128,
            "MiB after which a file is completed and the next one begun.",
            low=1,
            ours=True,
        ),
        Key(
            "entryCacheRecordFileSeconds",
            "int",
            300,
            "Seconds after which a file is completed, and so the most that a crash can lose.",
            low=1,
            ours=True,
        ),
        Key(
            "entryCacheRecordBufferRows",
            "int",
            65_536,
            "Events that may wait to be written, each a few hundred bytes; one more is dropped and counted.",
            low=1,
            ours=True,
        ),
        Key(
            "entryCacheRecordKeptMB",
            "long",
            10_240,
            "MiB of files that a broker keeps, the oldest removed first; 0 = all.",
            low=0,
            ours=True,
        ),
    ],
)
