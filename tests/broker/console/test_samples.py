"""Samples of the whole broker: rates between readings, quantiles, the history's size, the log's warnings."""

from __future__ import annotations

import logging

import pytest

from broker.console.log_warnings import KEPT, LogWarnings
from broker.console.samples import HISTORY, SECONDS_KEPT, TENS_KEPT, History, Interval, Reading, quantile
from broker.console.traffic import Counts, Levels

SECOND_NS = 10**9
BOUNDS_MS = (1.0, 10.0)


def reading(at_s: int, *, counted_s: int | None = None, **counted: int) -> Reading:
    counted_ns = (at_s if counted_s is None else counted_s) * SECOND_NS
    counts = Counts(latencies=(counted.get("messages_in", 0), 0, 0), **counted)
    return Reading(
        at_ns=at_s * SECOND_NS,
        at_ms=at_s * 1000,
        counts=counts,
        levels=Levels(),
        counted_ns=counted_ns,
        walked_ns=counted_ns,
    )


def test_rates_are_those_of_the_time_between_two_readings() -> None:
    interval = Interval(BOUNDS_MS)
    first = interval.sample(reading(10, messages_in=500, hits=7, reads=10))
    assert (first["messagesIn"], first["hitRatio"], first["publishP50Ms"]) == (0.0, None, None)
    assert first["hitRatioTotal"] == 0.7
    second = interval.sample(reading(12, messages_in=700, bytes_in=64, hits=8, reads=14))
    assert (second["messagesIn"], second["bytesIn"], second["hitRatio"]) == (100.0, 32.0, 0.25)
    assert second["publishP50Ms"] == pytest.approx(0.5)


def test_rates_are_repeated_while_topics_are_not_counted_again() -> None:
    interval = Interval(BOUNDS_MS)
    interval.sample(reading(10, messages_in=0))
    assert interval.sample(reading(11, messages_in=100))["messagesIn"] == 100
    same = reading(12, messages_in=100, counted_s=11)
    repeated = interval.sample(same)
    assert (repeated["messagesIn"], repeated["walkedSecondsAgo"]) == (100, 1.0)
    # Counted again after two seconds: the growth is divided by these two.
    assert interval.sample(reading(13, messages_in=200))["messagesIn"] == 50


def test_hit_ratio_is_repeated_while_topics_are_not_counted_again() -> None:
    interval = Interval(BOUNDS_MS)
    interval.sample(reading(10))
    assert interval.sample(reading(11, hits=1, reads=4))["hitRatio"] == 0.25
    same = reading(12, hits=1, reads=4, counted_s=11)
    assert interval.sample(same)["hitRatio"] == 0.25
    assert interval.sample(reading(13, hits=1, reads=4))["hitRatio"] is None


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [((0, 0, 0), 0.5, None), ((4, 0, 0), 0.5, 0.5), ((0, 10, 0), 0.5, 5.5), ((1, 1, 2), 0.99, 10.0)],
)
def test_quantile_lies_within_its_bucket(counts: tuple[int, ...], share: float, value: float | None) -> None:
    assert quantile(BOUNDS_MS, counts, share) == value


def test_history_keeps_five_minutes_and_an_hour() -> None:
    history, interval = History(), Interval(BOUNDS_MS)
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
    history, interval = History(), Interval(BOUNDS_MS)
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
