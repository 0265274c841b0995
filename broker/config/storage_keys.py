"""Keys of the broker's storage side: managed ledgers, cursors, the entry cache, the ledger client.

Names and defaults are Pulsar's (its configuration class, release 4.2, where 4.0 and 5.0 differ they have
a column); the words are ours. A key that no room of ours reads yet says so (`used=False`).
"""

from __future__ import annotations

from settings.keys import COMPUTED, Key, Section

POLICIES = ("pip430", "pip430-stash", "fifo-ttl", "magnetar")
IGNORED = " Has no effect while cacheEvictionByExpectedReadCount is true."

BOOKIES: Section = (
    "Ledgers and bookies",
    [
        Key(
            "managedLedgerDigestType",
            "string",
            "CRC32C",
            "Digest that closes every entry of a new ledger and is checked when it is read back; MAC is an"
            " HMAC-SHA1 under managedLedgerPassword.",
            choices=("CRC32C", "CRC32", "MAC", "DUMMY"),
        ),
        Key(
            "managedLedgerPassword",
            "string",
            None,
            "Password of new ledgers: bookies refuse whoever writes without it, and it is the key of the MAC"
            " digest.",
        ),
        Key(
            "managedLedgerDefaultEnsembleSize",
            "int",
            None,
            "Bookies that the entries of a ledger are spread over.",
            computed="2, or as many as bookieAddress names where these are fewer",
            low=1,
        ),
        Key(
            "managedLedgerDefaultWriteQuorum",
            "int",
            None,
            "Bookies that get each entry.",
            computed="2, or managedLedgerDefaultEnsembleSize where that is less",
            low=1,
        ),
        Key(
            "managedLedgerDefaultAckQuorum",
            "int",
            None,
            "Bookies whose answers confirm an entry.",
            computed="2, or managedLedgerDefaultWriteQuorum where that is less",
            low=1,
        ),
        Key(
            "bookkeeper_opportunisticStriping",
            "bool",
            False,
            "Let a new ledger have fewer bookies than managedLedgerDefaultEnsembleSize, though never fewer than"
            " managedLedgerDefaultWriteQuorum, while no more are there.",
        ),
        Key(
            "bookkeeperEnableStickyReads",
            "bool",
            True,
            "Read all entries of a ledger from one bookie while that answers, so that only one reads ahead and"
            " caches; needs an ensemble as large as the write quorum.",
        ),
        Key(
            "bookkeeperClientSpeculativeReadTimeoutInMillis",
            "int",
            0,
            "Milliseconds without an answer after which a read also asks the next bookie; 0: never.",
            low=0,
        ),
        Key(
            "bookkeeperClientHealthCheckEnabled",
            "bool",
            True,
            "Put bookies that fail again and again into quarantine: new ledgers avoid them.",
        ),
        Key(
            "bookkeeperClientHealthCheckErrorThresholdPerInterval",
            "long",
            5,
            "Failed adds within bookkeeperClientHealthCheckIntervalSeconds that put a bookie into quarantine.",
            low=1,
        ),
        Key(
            "bookkeeperClientHealthCheckIntervalSeconds",
            "long",
            60,
            "Seconds within which they count.",
            low=1,
        ),
        Key(
            "bookkeeperClientHealthCheckQuarantineTimeInSeconds",
            "long",
            1800,
            "Seconds of the quarantine.",
            low=0,
        ),
        Key(
            "bookkeeperClientTimeoutInSeconds",
            "long",
            30,
            "Seconds after which an unanswered request to a bookie has failed.",
            low=1,
        ),
        Key(
            "managedLedgerReadEntryTimeoutSeconds",
            "long",
            0,
            "Seconds after which a read for a subscription has failed; 0 leaves it to"
            " bookkeeperClientTimeoutInSeconds.",
            low=0,
        ),
        Key(
            "managedLedgerAddEntryTimeoutSeconds",
            "long",
            0,
            "Seconds after which a publish that no bookie confirmed has failed; 0 leaves it to"
            " bookkeeperClientTimeoutInSeconds.",
            low=0,
            used=False,
        ),
    ],
)

LEDGERS: Section = (
    "Managed ledger",
    [
        Key(
            "managedLedgerMaxEntriesPerLedger",
            "int",
            50_000,
            "Entries after which a topic goes on to a new ledger, once"
            " managedLedgerMinLedgerRolloverTimeMinutes are over.",
            low=1,
        ),
        Key(
            "managedLedgerMaxSizePerLedgerMbytes",
            "int",
            2048,
            "MiB after which a topic goes on to a new ledger, under the same condition.",
            low=1,
        ),
        Key(
            "managedLedgerMinLedgerRolloverTimeMinutes",
            "int",
            10,
            "Minutes that a ledger is kept open at least, however full it is; 0: it rolls as soon as it is"
            " full.",
            low=0,
        ),
        Key(
            "managedLedgerMaxLedgerRolloverTimeMinutes",
            "int",
            240,
            "Minutes after which a ledger that has entries is closed and a new one opened; 0 or less: never"
            " by time.",
        ),
        Key(
            "managedLedgerNewEntriesCheckDelayInMillis",
            "int",
            10,
            "Milliseconds after which a cursor that found nothing looks again before it waits to be woken.",
            low=0,
            used=False,
        ),
        Key(
            "managedLedgerStatsPeriodSeconds",
            "int",
            60,
            "Seconds over which the rates of the managed ledgers and of the entry cache are computed.",
            low=1,
        ),
        Key(
            "defaultRetentionTimeInMinutes",
            "int",
            0,
            "Minutes that acknowledged entries are kept; -1 means for ever.",
            low=-1,
            used=False,
        ),
        Key(
            "defaultRetentionSizeInMB",
            "int",
            0,
            "MiB of acknowledged entries that a topic keeps; -1 means all.",
            low=-1,
            used=False,
        ),
        Key(
            "retentionCheckIntervalInSeconds",
            "int",
            120,
            "Seconds between two looks for ledgers that nobody needs any more.",
            low=1,
        ),
    ],
)

CURSORS: Section = (
    "Cursors",
    [
        Key(
            "managedLedgerCursorMaxEntriesPerLedger",
            "int",
            50_000,
            "Position records after which a cursor goes on to a new ledger.",
            low=1,
            used=False,
        ),
        Key(
            "managedLedgerCursorRolloverTimeInSeconds",
            "int",
            14_400,
            "Seconds after which a cursor goes on to a new ledger.",
            low=1,
            used=False,
        ),
        Key(
            "managedLedgerDefaultMarkDeleteRateLimit",
            "double",
            1.0,
            "Times per second that one cursor's position is written; acknowledgments in between share a"
            " write. 0 writes every one.",
            low=0,
        ),
        Key(
            "managedLedgerCursorPositionFlushSeconds",
            "int",
            60,
            "Seconds after which a position that the rate limit held back is written even if nothing else is"
            " acknowledged.",
            low=1,
            used=False,
        ),
        Key(
            "managedLedgerMaxUnackedRangesToPersist",
            "int",
            10_000,
            "Ranges of individually acknowledged entries that are stored with the position; more are"
            " delivered again after a restart.",
            v50=200_000,
            low=0,
        ),
        Key(
            "managedLedgerMaxBatchDeletedIndexToPersist",
            "int",
            10_000,
            "Batches acknowledged in part whose bits are stored with the position.",
            low=0,
        ),
        Key(
            "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
            "int",
            1000,
            "Ranges up to which a closing cursor is stored in the metadata store instead of a ledger.",
            low=0,
            used=False,
        ),
        Key(
            "managedLedgerPersistIndividualAckAsLongArray",
            "bool",
            True,
            "Store acknowledged entries as bit sets, one bit per entry, instead of as a list of ranges.",
            v40=False,
            used=False,
        ),
    ],
)

ENTRY_CACHE: Section = (
    "Entry cache",
    [
        Key(
            "managedLedgerCacheSizeMB",
            "int",
            None,
            "MiB of entries that the broker keeps for its readers; 0 switches the cache off.",
            low=0,
            dynamic=True,
            computed="a fifth of direct memory, at least 64",
        ),
        Key(
            "entryCachePolicy",
            "string",
            "pip430",
            "Which entries stay cached. pip430: as the Pulsar release of magnetarProfile decides; magnetar: by the"
            " positions of the readers, see docs/entry_cache.md; pip430-stash: as the first revision of PIP-430;"
            " fifo-ttl: the oldest is removed first, as before PIP-430.",
            choices=POLICIES,
            ours=True,
        ),
        Key(
            "entryCacheTopicQuotaMB",
            "int",
            0,
            "MiB that one topic may hold before its entries go first, if that is more than an equal share of the"
            " cache. For the policy magnetar.",
            low=0,
            dynamic=True,
            ours=True,
        ),
        Key(
            "entryCachePinnedRatioMax",
            "double",
            1.5,
            "Copy entries that come together out of a receive buffer that is more than so many times as long as"
            " they are, so that a cached entry keeps little else alive; 0 = never, unless the policy magnetar needs"
            " the room.",
            low=0,
            dynamic=True,
            ours=True,
        ),
        Key(
            "entryCacheDecisionsKept",
            "int",
            20_000,
            "Newest decisions of the cache that are kept to answer why an entry is or is not cached; 0 = none.",
            low=0,
            high=400_000,
            dynamic=True,
            ours=True,
        ),
        Key(
            "entryCacheSubscriptionMetricsMax",
            "int",
            100,
            "Subscriptions with series of their own for cache hits and misses, those that read most first; 0 = none.",
            low=0,
            high=100_000,
            ours=True,
        ),
        Key(
            "managedLedgerCacheEvictionTimeThresholdMillisMax",
            "long",
            5000,
            "Milliseconds that an entry stays while somebody is still to read it. For the policy pip430-stash.",
            low=1,
            dynamic=True,
            ours=True,
        ),
        Key(
            "managedLedgerCacheCopyEntries",
            "bool",
            False,
            "Copy entries into memory of their own. Without it they share the receive buffer that they came"
            " in, which is cheaper and keeps the whole buffer alive as long as one of them.",
        ),
        Key(
            "managedLedgerCacheEvictionWatermark",
            "double",
            0.9,
            "Share of the cache that is left filled by an eviction for want of room.",
            low=0,
            high=1,
            dynamic=True,
        ),
        Key(
            "managedLedgerCacheEvictionIntervalMs",
            "long",
            10,
            "Milliseconds between two evictions by age.",
            low=1,
        ),
        Key(
            "managedLedgerCacheEvictionTimeThresholdMillis",
            "long",
            1000,
            "Milliseconds that an entry stays in the cache (its time to live).",
            low=1,
            dynamic=True,
        ),
        Key(
            "cacheEvictionByExpectedReadCount",
            "bool",
            True,
            "Cache entries for the subscriptions that are still going to read them (PIP-430). false: the older rules"
            " beside entryCachePolicy: what stands before the slowest reader is dropped at once, reads from storage fill"
            " the cache only where others follow closely, and nobody who left is waited for. fifo-ttl is meant for"
            " that; magnetar still decides by where the readers stand, among what these rules leave.",
            v40=False,
        ),
        Key(
            "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes",
            "int",
            5,
            "Times that an entry which is still awaited gets another time to live.",
            low=0,
            dynamic=True,
        ),
        Key(
            "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed",
            "bool",
            True,
            "Also give one to an entry that was read since its last time to live began.",
            v50=False,
            dynamic=True,
        ),
        Key(
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis",
            "long",
            None,
            "Milliseconds for which new entries are still cached after the last subscription left, so that"
            " one that comes back finds them; 0 or less: none. Needs cacheEvictionByExpectedReadCount.",
            computed="twice managedLedgerCacheEvictionTimeThresholdMillis",
        ),
        Key(
            "cacheEvictionByMarkDeletedPosition",
            "bool",
            False,
            "Let cursors count in the cache at what they have acknowledged instead of where they read: in the"
            " ranks that expected reads are made from, and in what is evicted where these are off.",
        ),
        Key(
            "managedLedgerCursorBackloggedThreshold",
            "long",
            1000,
            "Entries of backlog above which a subscription no longer counts as a reader of the cache."
            + IGNORED,
            low=1,
        ),
        Key(
            "managedLedgerMinimumBacklogCursorsForCaching",
            "int",
            0,
            "Durable subscriptions with a backlog of similar size from which on entries that one of them"
            " reads from storage are cached for the others; 0: never." + IGNORED,
            low=0,
            dynamic=True,
        ),
        Key(
            "managedLedgerMinimumBacklogEntriesForCaching",
            "int",
            1000,
            "Entries of backlog from which on a subscription is counted for that." + IGNORED,
            low=0,
            dynamic=True,
        ),
        Key(
            "managedLedgerMaxBacklogBetweenCursorsForCaching",
            "int",
            1000,
            "Entries by which two backlogs may differ and still be of similar size." + IGNORED,
            low=0,
            dynamic=True,
        ),
        Key(
            "managedLedgerMaxReadsInFlightSizeInMB",
            "long",
            0,
            "MiB of entries that may be on their way from bookies to clients; above it reads wait. 0 means"
            " no limit.",
            v50=COMPUTED,
            low=0,
            computed="15 % of direct memory, at least dispatcherMaxReadSizeBytes (profile 5.0)",
        ),
        Key(
            "managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis",
            "long",
            60_000,
            "Milliseconds that a read waits for its share of managedLedgerMaxReadsInFlightSizeInMB before it"
            " fails.",
            low=1,
        ),
        Key(
            "managedLedgerMaxReadsInFlightPermitsAcquireQueueSize",
            "int",
            50_000,
            "Reads that may wait for their share; one more fails at once.",
            low=1,
        ),
    ],
)
