"""The watch of the read cache: shares of windows, and the recommendation with keys and values."""

from __future__ import annotations

import re

from bookie_stub.disk.read_cache_watch import REMINDER_NS, WINDOW_NS, ReadCacheWatch

MIB = 1 << 20
LOAD = [bytes(1024)] * 101
"""A load of 100 entries besides the one that was asked for."""


def window(watch: ReadCacheWatch, began_ns: int, evicted: int, ledgers: int = 20) -> str:
    """Loads once for each ledger, then once in the next window; returns the recommendation."""
    for ledger_id in range(ledgers):
        assert watch.loaded(ledger_id, LOAD, 0, began_ns) == ""
    return watch.loaded(0, LOAD, evicted, began_ns + WINDOW_NS)


def begun(policy: str = "ring") -> ReadCacheWatch:
    watch = ReadCacheWatch(policy, MIB, 100)
    watch.loaded(0, LOAD[:1], 0, 0)
    return watch


def test_share_is_that_of_the_last_window() -> None:
    watch = begun()
    window(watch, 1, 500)
    assert watch.share(1 + WINDOW_NS) == 500 / 2000
    assert watch.share(1 + 4 * WINDOW_NS) == 0.0


def test_few_entries_say_nothing() -> None:
    watch = begun()
    assert window(watch, 1, 500, ledgers=9) == ""
    assert watch.share(1 + WINDOW_NS) == 0.0


def test_recommendation_names_keys_and_values_that_fit_the_demand() -> None:
    advice = window(begun(), 1, 1900)
    assert "1900 of 2000 entries" in advice
    size = re.search(r"dbStorage_readAheadCacheMaxSizeMb=(\d+)", advice)
    readahead = re.search(r"dbStorage_readAheadCacheBatchSize=(\d+)", advice)
    assert size is not None
    assert readahead is not None
    assert "readCachePolicy=served-first" in advice
    # 20 ledgers times 101 entries of 1 KiB, and a quarter more.
    assert int(size[1]) == 3
    assert 20 * (int(readahead[1]) + 1) * 1088 <= MIB * 1.05


def test_policy_that_is_set_already_is_not_recommended() -> None:
    assert "readCachePolicy" not in window(begun("served-first"), 1, 1900)


def test_recommendation_comes_once_an_hour() -> None:
    watch = begun()
    assert window(watch, 1, 1900)
    assert not window(watch, 1 + WINDOW_NS, 1900 + 1900)
    assert window(watch, 1 + REMINDER_NS + WINDOW_NS, 3 * 1900 + 2000)
