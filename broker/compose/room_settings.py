"""Settings of rooms that need more than their keys: a second fact, or a name.

All other rooms' settings are read with `of`, such as `NetSettings.of(settings)`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.ledger_settings import LedgerSettings
from broker.config.rules import own_interceptors
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.service.topics.topic_ownership import Listener
from foundation.loop import clock
from foundation.settings.settings import Settings
from foundation.units import MIB, NS_PER_MS

if TYPE_CHECKING:
    from broker.managed_ledger.entry_metadata.own_interceptors import OwnInterceptors
    from broker.offload.ledger_tier import LedgerTier
    from broker.recorder.settings import RecordSettings


def ensemble_settings(settings: Settings, *, alone: bool) -> LedgerSettings:
    """Returns the layout of ledgers. `alone` means one bookie, which gets every entry whatever the quorums say."""
    if alone:
        # A broker.conf of a cluster must start with one bookie too; `rules.check` notes that entries have one copy.
        return LedgerSettings.of(settings, ensemble_size=1, write_quorum=1, ack_quorum=1)
    return LedgerSettings.of(settings)


def reads_limiter(settings: Settings) -> InflightReadsLimiter:
    """Makes the budget of reads from storage."""
    return InflightReadsLimiter(
        settings.int("managedLedgerMaxReadsInFlightSizeInMB") * MIB,
        settings.int("managedLedgerMaxReadsInFlightPermitsAcquireQueueSize"),
        settings.int("managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis") * NS_PER_MS,
    )


class LateTier:
    """Makes the storage of copies of ledgers when the first ledger needs it."""

    def __init__(self, settings: Settings, metadata: MetadataStore) -> None:
        self._settings = settings
        self._metadata = metadata
        self.made: LedgerTier | None = None
        """None before that."""

    def __call__(self) -> LedgerTier:
        """Returns the storage."""
        if self.made is None:
            from broker.offload.ledger_tier import LedgerTier

            ahead = self._settings.int("managedLedgerOffloadPrefetchRounds")
            self.made = LedgerTier(self._metadata, ahead)
        return self.made


def record_settings(settings: Settings) -> RecordSettings | None:
    """Returns the access record's settings; None without a folder."""
    directory = settings.str("entryCacheRecordDirectory")
    if not directory:
        return None
    # Late, as the recorder is.
    from broker.recorder.settings import RecordSettings

    plain, tls = (settings.optional_int(key) for key in ("brokerServicePort", "brokerServicePortTls"))
    name = f"{settings.str('advertisedAddress')}-{tls if plain is None else plain}"
    # The name becomes a folder's, so a path separator or a colon must not stay in it.
    broker = re.sub(r"[^\w.-]", "_", name)
    return RecordSettings.of(settings, directory=Path(directory), broker=broker)


def interceptors_of(settings: Settings) -> OwnInterceptors | None:
    """Loads the interceptors of one's own that the settings name; None without one, which imports nothing."""
    if not (names := own_interceptors(settings)):
        return None
    from broker.managed_ledger.entry_metadata.own_interceptors import OwnInterceptors

    return OwnInterceptors.load(names, clock.monotonic_ns)


def listeners_of(settings: Settings) -> dict[str, Listener]:
    """Returns the addresses of `advertisedListeners`, texts such as `name:pulsar://host:port`, by name."""
    found: dict[str, Listener] = {}
    for text in settings.list("advertisedListeners"):
        name, _, url = (part.strip() for part in text.partition(":"))
        known = found.get(name, Listener())
        # A name may stand twice, with an address for each kind of port.
        is_tls = url.startswith("pulsar+ssl:")
        found[name] = known._replace(url_tls=url) if is_tls else known._replace(url=url)
    return found
