"""The bookie's settings read the right keys in the right units."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import load_bookie_settings
from bookie_stub.config.settings import BookieSettings, DiskSettings, GroupSettings
from bookie_stub.disk.read_cache import POLICIES
from foundation.settings.errors import SettingsError


def load(*overrides: str) -> BookieSettings:
    return BookieSettings.of(load_bookie_settings(None, environ={}, overrides=overrides))


def test_values_are_converted_into_the_rooms_units() -> None:
    settings = load(
        "journalDirectories=/somewhere/journal",
        "ledgerDirectories=/somewhere/ledgers",
        "journalMaxSizeMB=3",
        "journalPreAllocSizeMB=2",
        "dbStorage_writeCacheMaxSizeMb=10",
        "flushInterval=1500",
        "dbStorage_maxThrottleTimeMs=250",
        "journalSyncData=false",
        "forceReadOnlyBookie=true",
        "dbStorage_readAheadCacheMaxSizeMb=7",
        "readCachePolicy=served-first",
        "dbStorage_readAheadCacheBatchSize=50",
        "dbStorage_readAheadCacheBatchBytesSize=2097152",
        "readAheadStopsAtGap=false",
    )
    assert settings.journal_directories == (Path("/somewhere/journal"),)
    assert settings.index_directories == settings.ledger_directories == (Path("/somewhere/ledgers"),)
    assert settings.journal_bytes_max == 3 << 20
    assert settings.journal_allocate_bytes == 2 << 20
    assert settings.write_cache_bytes == 10 << 20
    assert settings.flush_interval_s == 1.5
    assert settings.throttle_s_max == 0.25
    assert settings.read_cache_bytes == 7 << 20
    assert settings.read_cache_policy == "served-first"
    assert (settings.readahead_entries, settings.readahead_bytes) == (50, 2 << 20)
    assert not settings.readahead_stops_at_gap
    assert settings.read_only
    assert not settings.journal_sync_data


def test_read_defaults_are_those_that_pulsar_ships() -> None:
    settings = load()
    assert (settings.readahead_entries, settings.readahead_bytes) == (1000, -1)
    assert settings.read_cache_policy == "ring"
    assert settings.readahead_stops_at_gap
    assert settings.read_cache_bytes == settings.write_cache_bytes  # a quarter of direct memory each


def test_read_cache_policies_are_those_of_the_cache() -> None:
    assert set(BOOKIE_KEYS.keys["readCachePolicy"].choices) == set(POLICIES)


@pytest.mark.parametrize(
    "bad",
    [
        "ledgerDirectories=a,a",
        "indexDirectories=a,b",
        "journalDirectories=a,a",
        "journalAlignmentSize=1000",
        "readCachePolicy=fifo",
        "dbStorage_readAheadCacheBatchSize=-1",
        "dbStorage_readAheadCacheBatchBytesSize=-2",
        "dbStorage_readAheadCacheMaxSizeMb=-1",
    ],
)
def test_value_is_refused_when_the_bookie_cannot_obey_it(bad: str) -> None:
    with pytest.raises(SettingsError, match=bad.split("=")[0]):
        load(bad)


@pytest.mark.parametrize(
    "asking", ["tlsKeyStore=k", "tlsCertificatePath=c", "tlsClientAuthentication=true", "tlsTrustStore=t"]
)
def test_key_of_tls_is_refused_while_tls_is_off(asking: str) -> None:
    with pytest.raises(
        SettingsError, match=f"^--set: {asking}: asks for TLS, which is off: set tlsProviderFactoryClass="
    ):
        load(asking)


def test_values_of_upkeep_are_converted_into_its_units() -> None:
    settings = load(
        "gcWaitTime=1500",
        "verifyMetadataOnGC=false",
        "minorCompactionThreshold=0.1",
        "minorCompactionInterval=60",
        "majorCompactionThreshold=0.7",
        "majorCompactionInterval=0",
        "isThrottleByBytes=true",
        "compactionRateByBytes=5000",
        "diskUsageThreshold=0.8",
        "diskUsageLwmThreshold=0.7",
        "diskCheckInterval=250",
        "journalFlushWhenQueueEmpty=false",
        "journalMaxGroupWaitMSec=3",
        "journalBufferedWritesThreshold=1000",
        "journalBufferedEntriesThreshold=10",
    )
    collection = settings.collection
    assert (collection.wait_s, collection.verify) == (1.5, False)
    assert (collection.minor_threshold, collection.minor_interval_s, collection.minor) == (0.1, 60, True)
    assert (collection.major_threshold, collection.major) == (0.7, False)
    assert (collection.rate, collection.rate_in_bytes) == (5000, True)
    assert settings.disk == DiskSettings(full=0.8, warn=0.8, low=0.7, interval_s=0.25)
    assert settings.journal_group == GroupSettings(wait_s=0.003, bytes_max=1000, records_max=10)
    assert load("journalMaxGroupWaitMSec=3").journal_group.wait_s == 0


def test_several_directories_are_read() -> None:
    settings = load("ledgerDirectories=/a,/b", "journalDirectories=/c,/d,/e")
    assert settings.ledger_directories == settings.index_directories == (Path("/a"), Path("/b"))
    assert settings.journal_directories == (Path("/c"), Path("/d"), Path("/e"))


@pytest.mark.parametrize(
    "bad",
    [
        ("diskUsageLwmThreshold=0.96",),
        ("majorCompactionThreshold=0.1",),
        ("minorCompactionThreshold=1.5",),
        ("diskUsageThreshold=0",),
    ],
)
def test_thresholds_are_refused_when_they_contradict_each_other(bad: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=bad[0].split("=")[0]):
        load(*bad)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((), None),
        (("Max=65536",), (65536, 65536, 65536)),
        (("Max=4096",), (4096, 4096, 4096)),
        (("Initial=16384",), (16384, 16384, 1 << 20)),
        (("Min=1024", "Initial=2048", "Max=8192"), (1024, 2048, 8192)),
        (("Min=2097152",), (2 << 20, 2 << 20, 2 << 20)),
    ],
)
def test_sizes_of_reads_that_are_not_given_fit_those_that_are(
    given: tuple[str, ...], sizes: tuple[int, int, int] | None
) -> None:
    settings = load_bookie_settings(
        None, environ={}, overrides=[f"byteBufAllocatorSize{one}" for one in given]
    )
    assert BookieSettings.of(settings).receive_sizes == sizes


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("Min=2048", "Max=1024"), "byteBufAllocatorSizeMin"),
        (("Initial=2048", "Max=1024"), "byteBufAllocatorSizeInitial"),
        (("Min=2048", "Initial=1024"), "byteBufAllocatorSizeMin"),
    ],
)
def test_sizes_of_reads_that_fall_are_refused(given: tuple[str, ...], named: str) -> None:
    with pytest.raises(SettingsError, match=rf"^--set: {named}=2048: .* raise the last or lower the first"):
        load(*(f"byteBufAllocatorSize{one}" for one in given))
