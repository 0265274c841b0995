"""What stands in for a key that nobody set and that has no fixed default; which values exclude each other.

Each rule is a function of the settings and answers with the value and what it was computed from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from broker.config.server_keys import INTERCEPTORS
from settings.errors import SettingsError
from settings.memory import DirectMemory, direct_memory
from settings.settings import Computed, Note, Settings

CACHE_SIZE_MIN_MB = 64
MIB = 1 << 20
Rule = Callable[[Settings], Computed]

NOT_ABOVE = (
    ("brokerAdaptiveRecvByteBufAllocatorMinimumSize", "brokerAdaptiveRecvByteBufAllocatorInitialSize"),
    ("brokerAdaptiveRecvByteBufAllocatorInitialSize", "brokerAdaptiveRecvByteBufAllocatorMaximumSize"),
    ("pulsarChannelWriteBufferLowWaterMark", "pulsarChannelWriteBufferHighWaterMark"),
)
"""Pairs of keys of which the first may not be larger than the second."""

FORMS = (
    (
        "brokerEntryMetadataInterceptors",
        "|".join(map(re.escape, INTERCEPTORS)),
        " and ".join(INTERCEPTORS),
    ),
    ("bookieAddress", r"embedded|.+:\d{1,5}", "embedded or host:port"),
    ("advertisedListeners", r"[^:]+:pulsar(\+ssl)?://.+:\d{1,5}", "name:pulsar://host:port"),
)
"""Keys whose texts have a form: (key, pattern of the text or of each text of a list, what is allowed)."""

OUTRANKED = ("cacheEvictionByMarkDeletedPosition",)
"""Keys without effect while cacheEvictionByExpectedReadCount is true."""


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


def check(settings: Settings) -> list[Note]:
    """Raises SettingsError for values that cannot hold together; notes those that cancel each other."""
    for name, pattern, allowed in FORMS:
        value = settings.value(name) or ()
        for text in value if isinstance(value, tuple) else (str(value),):
            if not re.fullmatch(pattern, text.strip()):
                raise SettingsError(f"{settings.origin(name)}: {name}={text}: allowed is {allowed}")
    for low, high in NOT_ABOVE:
        if settings.int(low) > settings.int(high):
            culprit = low if settings.is_set(low) else high
            raise SettingsError(
                f"{settings.origin(culprit)}: {culprit}={settings.int(culprit)}: {low} ({settings.int(low)})"
                f" may not be above {high} ({settings.int(high)})"
            )
    if not settings.bool("cacheEvictionByExpectedReadCount"):
        return []
    outranked = [name for name in OUTRANKED if settings.is_set(name) and not _is_default(settings, name)]
    because = "no effect while cacheEvictionByExpectedReadCount=true"
    return [Note("warning", f"{settings.origin(name)}: {name}: {because}") for name in outranked]


def _is_default(settings: Settings, name: str) -> bool:
    return settings.value(name) == settings.table.keys[name].default_for(settings.profile)


def _metadata_store_url(settings: Settings) -> Computed:
    if settings.bool("magnetarInMemory"):
        return Computed("memory:local", "magnetarInMemory")
    return Computed(f"file:{settings.str('magnetarDataDirectory')}/metadata.sqlite", "magnetarDataDirectory")


def _host_name() -> str:
    import socket  # only a broker without advertisedAddress pays for it

    return socket.getfqdn()
