"""From bookkeeper.conf's keys to what the rooms take, with the units right."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_stub.config import BookieSettings, from_settings
from bookie_stub.config_keys import BOOKIE_KEYS
from bookie_stub.config_rules import load_bookie_settings
from bookie_stub.read_cache import POLICIES
from settings.errors import SettingsError


def load(*overrides: str) -> BookieSettings:
    return from_settings(load_bookie_settings(None, environ={}, overrides=overrides))


def test_units() -> None:
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


def test_reads_are_bookkeepers_as_pulsar_ships_it() -> None:
    settings = load()
    assert (settings.readahead_entries, settings.readahead_bytes) == (1000, -1)
    assert settings.read_cache_policy == "ring"
    assert settings.readahead_stops_at_gap
    assert settings.read_cache_bytes == settings.write_cache_bytes  # a quarter of direct memory each


def test_the_policies_of_the_setting_are_those_of_the_cache() -> None:
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
def test_what_this_bookie_cannot_do_is_refused(bad: str) -> None:
    with pytest.raises(SettingsError, match=bad.split("=")[0]):
        load(bad)
