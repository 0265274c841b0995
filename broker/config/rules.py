"""What stands in for a key that nobody set and that has no fixed default; which values exclude each other.

Each rule is a function of the settings and answers with the value and what it was computed from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from broker.config.server_keys import INTERCEPTORS
from settings.errors import SettingsError
from settings.keys import Value, format_value
from settings.memory import DirectMemory, direct_memory
from settings.settings import DYNAMIC, Computed, Note, Settings

CACHE_SIZE_MIN_MB = 64
USUAL_QUORUM = 2
"""Ensemble and quorums of Pulsar's broker.conf."""
EMBEDDED = "embedded"
REGISTERED = "registered"
MIB = 1 << 20
Rule = Callable[[Settings], Computed]
Condition = Callable[[Settings], bool]

NOT_ABOVE: tuple[tuple[str, str, Condition], ...] = (
    (
        "brokerAdaptiveRecvByteBufAllocatorMinimumSize",
        "brokerAdaptiveRecvByteBufAllocatorInitialSize",
        lambda settings: True,
    ),
    (
        "brokerAdaptiveRecvByteBufAllocatorInitialSize",
        "brokerAdaptiveRecvByteBufAllocatorMaximumSize",
        lambda settings: True,
    ),
    (
        "pulsarChannelWriteBufferLowWaterMark",
        "pulsarChannelWriteBufferHighWaterMark",
        lambda settings: True,
    ),
    ("managedLedgerDefaultAckQuorum", "managedLedgerDefaultWriteQuorum", lambda settings: True),
    ("managedLedgerDefaultWriteQuorum", "managedLedgerDefaultEnsembleSize", lambda settings: True),
    (
        "managedLedgerMinLedgerRolloverTimeMinutes",
        "managedLedgerMaxLedgerRolloverTimeMinutes",
        lambda settings: settings.int("managedLedgerMaxLedgerRolloverTimeMinutes") > 0,
    ),
    (
        "managedLedgerCacheEvictionTimeThresholdMillis",
        "managedLedgerCacheEvictionTimeThresholdMillisMax",
        lambda settings: settings.str("entryCachePolicy") == "pip430-stash",
    ),
    (
        "defaultNumPartitions",
        "maxNumPartitionsPerPartitionedTopic",
        lambda settings: (
            settings.int("maxNumPartitionsPerPartitionedTopic") > 0
            and settings.str("allowAutoTopicCreationType") == "partitioned"
        ),
    ),
)
"""Pairs of keys of which the first may not be larger than the second, where the condition holds."""

FORMS = (
    (
        "brokerEntryMetadataInterceptors",
        "|".join(map(re.escape, INTERCEPTORS)),
        " and ".join(INTERCEPTORS),
    ),
    (
        "bookieAddress",
        r"embedded|registered|.+:\d{1,5}",
        "embedded or host:port, the latter also several, or registered",
    ),
    (
        "metadataStoreUrl",
        r"file:.+|memory:.*|zk:[^,;/]+([,;][^,;/]+)*(/[^/]+)*/?",
        "file:PATH, memory:NAME or zk:host:port[,host:port][/chroot]",
    ),
    (
        "entryCacheCountsTopic",
        r"(persistent://)?[^/:]+(/[^/]+/[^/]+)?",
        "the name of a persistent topic",
    ),
    ("advertisedListeners", r"[^:]+:pulsar(\+ssl)?://.+:\d{1,5}", "name:pulsar://host:port"),
)
"""Keys whose texts have a form: (key, pattern of the text or of each text of a list, what is allowed)."""

NEEDED: tuple[tuple[str, Value, tuple[str, ...]], ...] = (
    (
        "cacheEvictionByExpectedReadCount",
        False,
        (
            "managedLedgerCursorBackloggedThreshold",
            "managedLedgerMinimumBacklogCursorsForCaching",
            "managedLedgerMinimumBacklogEntriesForCaching",
            "managedLedgerMaxBacklogBetweenCursorsForCaching",
        ),
    ),
    (
        "cacheEvictionByExpectedReadCount",
        True,
        (
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis",
            "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes",
        ),
    ),
    ("entryCachePolicy", "magnetar", ("entryCacheTopicQuotaMB",)),
    ("entryCachePolicy", "pip430", ("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed",)),
    ("entryCachePolicy", "pip430-stash", ("managedLedgerCacheEvictionTimeThresholdMillisMax",)),
)
"""A key, its value, and the keys that have no effect while it has another one."""


def broker_rules(environ: Mapping[str, str]) -> dict[str, Rule]:
    @cache
    def memory() -> DirectMemory:
        return direct_memory(environ)

    def share(numerator: int, denominator: int, at_least: int, words: str) -> Computed:
        size = max(memory().mebibytes * numerator // denominator, at_least)
        return Computed(size, f"{words} of {memory().mebibytes} MiB ({memory().source}), at least {at_least}")

    def reads_in_flight(settings: Settings) -> Computed:
        at_least = -(-settings.int("dispatcherMaxReadSizeBytes") // MIB)
        return share(15, 100, at_least, "15 %")

    return {
        "advertisedAddress": lambda settings: Computed(_host_name(), "host name"),
        "metadataStoreUrl": _metadata_store_url,
        "managedLedgerDefaultEnsembleSize": _ensemble_size,
        "managedLedgerDefaultWriteQuorum": lambda settings: _at_most(
            settings, "managedLedgerDefaultEnsembleSize"
        ),
        "managedLedgerDefaultAckQuorum": lambda settings: _at_most(
            settings, "managedLedgerDefaultWriteQuorum"
        ),
        "managedLedgerCacheSizeMB": lambda settings: share(20, 100, CACHE_SIZE_MIN_MB, "20 %"),
        "maxMessagePublishBufferSizeInMB": lambda settings: share(50, 100, 1, "50 %"),
        "managedLedgerMaxReadsInFlightSizeInMB": reads_in_flight,
        "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis": lambda settings: (
            Computed(
                2 * settings.int("managedLedgerCacheEvictionTimeThresholdMillis"),
                "2 x managedLedgerCacheEvictionTimeThresholdMillis",
            )
        ),
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": lambda settings: Computed(
            settings.int("brokerDeleteInactiveTopicsFrequencySeconds"),
            "brokerDeleteInactiveTopicsFrequencySeconds",
        ),
    }


def _ensemble_size(settings: Settings) -> Computed:
    bookies = len(settings.list("bookieAddress"))
    if REGISTERED in settings.list("bookieAddress"):
        return Computed(USUAL_QUORUM, f"bookieAddress={REGISTERED}")
    return Computed(min(USUAL_QUORUM, bookies), f"{USUAL_QUORUM}, with {bookies} in bookieAddress")


def _at_most(settings: Settings, name: str) -> Computed:
    return Computed(min(USUAL_QUORUM, settings.int(name)), f"{USUAL_QUORUM}, at most {name}")


def check(settings: Settings) -> list[Note]:
    """Raises SettingsError for values that cannot hold together; notes those that cancel each other."""
    _check_forms(settings)
    _check_memory(settings)
    _check_bookies(settings)
    _check_order(settings)
    return [*_without_effect(settings), *_smaller_than_a_read(settings), *_one_copy(settings)]


def _check_forms(settings: Settings) -> None:
    for name, pattern, allowed in FORMS:
        value = settings.value(name) or ()
        for text in value if isinstance(value, tuple) else (str(value),):
            if not re.fullmatch(pattern, text.strip()):
                raise SettingsError(f"{settings.origin(name)}: {name}={text}: allowed is {allowed}")


def _check_memory(settings: Settings) -> None:
    """Entries and what is written about them are kept together or are gone together."""
    name, url = "metadataStoreUrl", settings.str("metadataStoreUrl")
    if url.startswith("memory:") != settings.bool("magnetarInMemory"):
        wanted = "memory:NAME" if settings.bool("magnetarInMemory") else "file:PATH or zk:..."
        raise SettingsError(
            f"{settings.origin(name)}: {name}={url}: magnetarInMemory={format_value(settings.bool('magnetarInMemory'))}"
            f" needs {wanted}, because entries and metadata go together"
        )


def _check_bookies(settings: Settings) -> None:
    addresses = settings.list("bookieAddress")
    where = f"{settings.origin('bookieAddress')}: bookieAddress={','.join(addresses)}"
    if EMBEDDED in addresses and len(addresses) > 1:
        raise SettingsError(f"{where}: an embedded bookie has no others beside it; name several as host:port")
    if REGISTERED in addresses:
        if len(addresses) > 1:
            raise SettingsError(f"{where}: either those that are registered or a list")
        if not settings.str("metadataStoreUrl").startswith("zk:"):
            raise SettingsError(f"{where}: bookies register in ZooKeeper; set metadataStoreUrl=zk:host:port")
        return
    if len(set(addresses)) < len(addresses):
        raise SettingsError(f"{where}: names a bookie twice")
    name = "managedLedgerDefaultEnsembleSize"
    if settings.int(name) > len(addresses) > 1:
        raise SettingsError(
            f"{settings.origin(name)}: {name}={settings.int(name)}: bookieAddress names only {len(addresses)};"
            " name more bookies or set a smaller ensemble"
        )


def _check_order(settings: Settings) -> None:
    for low, high, holds in NOT_ABOVE:
        if settings.int(low) > settings.int(high) and holds(settings):
            culprit = _to_blame(settings, low, high)
            raise SettingsError(
                f"{settings.origin(culprit)}: {culprit}={settings.int(culprit)}: {low} ({settings.int(low)})"
                f" may not be above {high} ({settings.int(high)})"
            )


def _to_blame(settings: Settings, low: str, high: str) -> str:
    """What was changed at run time, else what somebody set."""
    changed = [name for name in (low, high) if settings.origin(name) == DYNAMIC]
    given = [name for name in (low, high) if settings.is_set(name)]
    return [*changed, *given, high][0]


def _without_effect(settings: Settings) -> list[Note]:
    notes = []
    for switch, needed, names in NEEDED:
        value = settings.value(switch)
        for name in names if value != needed else ():
            if settings.is_set(name) and not _is_default(settings, name):
                because = f"no effect while {switch}={format_value(value)}"
                notes.append(Note("warning", f"{settings.origin(name)}: {name}: {because}"))
    return notes


def _smaller_than_a_read(settings: Settings) -> list[Note]:
    """A read larger than the whole budget is served all the same, so this is no error."""
    name = "managedLedgerMaxReadsInFlightSizeInMB"
    budget_mb, read_bytes = settings.int(name), settings.int("dispatcherMaxReadSizeBytes")
    if not 0 < budget_mb * MIB < read_bytes:
        return []
    text = (
        f"{settings.origin(name)}: {name}={budget_mb}: less than one read may bring"
        f" (dispatcherMaxReadSizeBytes={read_bytes}): such a read waits until it is the only one"
    )
    return [Note("warning", text)]


def _one_copy(settings: Settings) -> list[Note]:
    """A broker.conf of a cluster starts with one bookie too, but what it asks for is not to be had."""
    name = "managedLedgerDefaultWriteQuorum"
    (address, *others) = settings.list("bookieAddress")
    if others or address == REGISTERED or settings.int(name) == 1 or not settings.is_set(name):
        return []
    text = (
        f"{settings.origin(name)}: {name}={settings.int(name)}: bookieAddress={address} is one bookie, so every entry is"
        " stored once"
    )
    return [Note("warning", text)]


def _is_default(settings: Settings, name: str) -> bool:
    return settings.value(name) == settings.table.keys[name].default_for(settings.profile)


def _metadata_store_url(settings: Settings) -> Computed:
    if settings.bool("magnetarInMemory"):
        return Computed("memory:local", "magnetarInMemory")
    return Computed(f"file:{settings.str('magnetarDataDirectory')}/metadata.sqlite", "magnetarDataDirectory")


def _host_name() -> str:
    import socket  # only a broker without advertisedAddress pays for it

    return socket.getfqdn()
