"""Samples of the whole broker: rates between readings, quantiles, the history's size, the log's warnings."""

from __future__ import annotations

import logging

import pytest

from broker.console.log_warnings import KEPT, LogWarnings
from broker.console.samples import (
    BOUNDS_MS,
    HISTORY,
    SECONDS_KEPT,
    TENS_KEPT,
    History,
    Interval,
    Rates,
    Reading,
)
from broker.console.traffic import COUNTED, NO_LATENCIES, SUMMED, TrafficCounts

SECOND_NS = 10**9


def counts_with(latencies: tuple[int, ...] = NO_LATENCIES, **counted: int) -> TrafficCounts:
    assert set(counted) <= set(COUNTED), counted
    return TrafficCounts(tuple(counted.get(name, 0) for name in COUNTED), latencies=latencies)


def reading(at_s: int, *, counted_s: int | None = None, **counted: int) -> Reading:
    counted_ns = (at_s if counted_s is None else counted_s) * SECOND_NS
    latencies = (counted.get("messagesIn", 0), *NO_LATENCIES[1:])
    return Reading(
        at_ns=at_s * SECOND_NS,
        at_ms=at_s * 1000,
        counts=counts_with(latencies, **counted),
        levels=dict.fromkeys(("topics", *SUMMED), 0),
        counted_ns=counted_ns,
    )


def test_rates_are_those_of_the_time_between_two_readings() -> None:
    interval = Interval()
    first = interval.sample(reading(10, messagesIn=500, hits=7, reads=10))
    assert (first["messagesIn"], first["hitRatio"], first["publishP50Ms"]) == (None, None, None)
    assert first["hitRatioTotal"] == 0.7
    second = interval.sample(reading(12, messagesIn=700, bytesIn=64, hits=8, reads=14))
    assert (second["messagesIn"], second["bytesIn"], second["hitRatio"]) == (100.0, 32.0, 0.25)
    assert second["publishP50Ms"] == pytest.approx(0.25)


def test_rates_are_repeated_while_topics_are_not_counted_again() -> None:
    interval = Interval()
    interval.sample(reading(10, messagesIn=0))
    assert interval.sample(reading(11, messagesIn=100))["messagesIn"] == 100
    same = reading(12, messagesIn=100, counted_s=11)
    repeated = interval.sample(same)
    assert (repeated["messagesIn"], repeated["countedSecondsAgo"]) == (100, 1.0)
    # Counted again after two seconds: the growth is divided by these two.
    assert interval.sample(reading(13, messagesIn=200))["messagesIn"] == 50


def test_sample_tells_the_age_of_its_rates_and_their_time() -> None:
    interval = Interval()
    first = interval.sample(reading(10))
    assert (first["windowSeconds"], first["countedSecondsAgo"]) == (None, 0.0)
    assert interval.sample(reading(13))["windowSeconds"] == 3.0
    stale = interval.sample(reading(25, counted_s=13))
    assert (stale["windowSeconds"], stale["countedSecondsAgo"]) == (3.0, 12.0)


def test_publish_latencies_are_those_of_the_last_minute() -> None:
    rates = Rates()
    slow = len(NO_LATENCIES) - 1

    def at(second: int, fast: int, slowest: int) -> object:
        latencies = [0] * len(NO_LATENCIES)
        latencies[0], latencies[slow] = fast, slowest
        return rates.rates(second * SECOND_NS, TrafficCounts(latencies=tuple(latencies)))["publishP99Ms"]

    assert at(1, 0, 0) is None
    # Past the last bound: the page writes this as more than a second.
    assert at(2, 0, 10) == BOUNDS_MS[-1] == 1000.0
    assert at(3, 100, 10) == 1000.0
    assert at(61, 100, 10) == 1000.0
    assert at(62, 100, 10) == pytest.approx(0.495)
    assert at(63, 100, 10) is None


def test_rates_begin_anew_when_counters_fell() -> None:
    rates = Rates()
    old = (10, *NO_LATENCIES[1:])
    rates.rates(1, counts_with(old, messagesIn=10))
    rates.rates(SECOND_NS, counts_with(old, messagesIn=10))
    assert rates.rates(2 * SECOND_NS, counts_with(messagesIn=1))["messagesIn"] is None


def test_hit_ratio_is_repeated_while_topics_are_not_counted_again() -> None:
    interval = Interval()
    interval.sample(reading(10))
    assert interval.sample(reading(11, hits=1, reads=4))["hitRatio"] == 0.25
    same = reading(12, hits=1, reads=4, counted_s=11)
    assert interval.sample(same)["hitRatio"] == 0.25
    assert interval.sample(reading(13, hits=1, reads=4))["hitRatio"] is None


def test_history_keeps_five_minutes_and_an_hour() -> None:
    history, interval = History(), Interval()
    for second in range(1, 1000):
        sample = interval.sample(reading(second))
        history.add_second(sample)
        history.add_ten(sample)
    shown = history.shown()
    assert shown["fields"] == list(HISTORY)
    seconds, tens = shown["seconds"], shown["tens"]
    assert isinstance(seconds, list)
    assert isinstance(tens, list)
    assert (len(seconds), len(tens)) == (SECONDS_KEPT, TENS_KEPT)
    newest, oldest = seconds[-1], seconds[0]
    assert isinstance(newest, list)
    assert isinstance(oldest, list)
    assert (newest[0], oldest[0]) == (999_000, 700_000)


def test_warnings_are_kept_in_order_and_bounded() -> None:
    kept = LogWarnings()
    log = logging.Logger("magnetar.test")
    log.addHandler(kept)
    log.info("not a warning")
    for number in range(KEPT + 5):
        log.warning("line %d", number)
    log.error("two\nlines")
    lines = kept.after(0)
    assert len(lines) == KEPT
    assert (lines[0]["text"], lines[-1]["text"]) == ("line 6", "two\\nlines")
    assert lines[-1]["level"] == "ERROR"
    assert kept.after(int(str(lines[-1]["number"]))) == []


def test_seconds_of_an_earlier_page_leave_the_history() -> None:
    history, interval = History(), Interval()
    history.add_second(interval.sample(reading(1)))
    history.add_second(interval.sample(reading(400)))
    history.add_ten(interval.sample(reading(450)))
    seconds = history.shown()["seconds"]
    assert isinstance(seconds, list)
    assert [row[0] for row in seconds if isinstance(row, list)] == [400_000]


def test_wrong_format_does_not_fail_the_code_that_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    kept = LogWarnings()
    log = logging.Logger("magnetar.test")
    log.addHandler(kept)
    log.warning("%d entries", "no number")
    log.warning("the next line")
    assert [line["text"] for line in kept.after(0)] == ["the next line"]
