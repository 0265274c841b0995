"""Windows: the growth of counters between two rolls, per second."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from broker.metrics.readings import (
    ConsumerReading,
    ProducerReading,
    SubscriptionReading,
    TopicReading,
)
from broker.metrics.window import NOTHING_YET, BrokerWindow, Histogram, TopicWindows, quantile, quantile_of
from tests.broker.metrics.readings_of import reading_of, reads

SECOND = 1_000_000_000
TOPIC = "persistent://public/default/orders"


def stats(msgs_in: int) -> TopicReading:
    return TopicReading(
        namespace="public/default",
        topic=TOPIC,
        msgs_in=msgs_in,
        bytes_in=msgs_in * 100,
        entries_added=msgs_in,
        write_latency=(msgs_in,) + (0,) * 9,
        subscriptions=[
            SubscriptionReading(
                name="s",
                msgs_out=msgs_in * 2,
                msgs_redelivered=msgs_in // 2,
                consumer_readings=[ConsumerReading(name="c", consumer_id=1, msgs_out=msgs_in)],
            )
        ],
        producer_readings=[ProducerReading(name="p", producer_id=1, msgs_in=msgs_in)],
    )


def roll(windows: TopicWindows, at_s: int, *topics: TopicReading) -> None:
    for _ in windows.roll(topics, at_s * SECOND):
        pass


def test_window_has_the_growth_since_the_last_roll_per_second() -> None:
    windows = TopicWindows(0)
    assert windows.of(TOPIC) is NOTHING_YET
    roll(windows, 60, stats(600))
    assert windows.of(TOPIC).rate_in == 10
    roll(windows, 120, stats(900))
    window = windows.of(TOPIC)
    assert (window.rate_in, window.throughput_in, window.average_msg_size) == (5, 500, 100)
    assert window.write_latency == (300,) + (0,) * 9
    assert window.subscriptions["s"].rate_out == 10
    assert window.subscriptions["s"].redeliver_rate == 2.5
    assert window.subscriptions["s"].consumers["c", 1].rate_out == 5
    assert window.producers["p"].rate_in == 5


def test_rates_are_zero_again_after_an_idle_window() -> None:
    windows = TopicWindows(0)
    roll(windows, 60, stats(600))
    roll(windows, 61, stats(600))
    assert windows.of(TOPIC).rate_in == 0
    assert windows.of(TOPIC).average_msg_size == 0


def test_counters_that_fell_count_from_zero() -> None:
    windows = TopicWindows(0)
    roll(windows, 1, stats(600))
    roll(windows, 2, stats(7))
    assert windows.of(TOPIC).rate_in == 7
    assert windows.of(TOPIC).write_latency[0] == 7


def test_non_persistent_topic_counts_from_zero_when_its_messages_fell() -> None:
    windows = TopicWindows(0)
    for at_s, msgs_in in ((1, 600), (2, 7)):
        topic = TopicReading(namespace="public/default", topic=TOPIC, msgs_in=msgs_in, bytes_in=msgs_in * 10)
        roll(windows, at_s, topic)
    assert (windows.of(TOPIC).rate_in, windows.of(TOPIC).throughput_in) == (7, 70)


def test_window_forgets_a_topic_that_is_no_longer_read() -> None:
    windows = TopicWindows(0)
    roll(windows, 1, stats(600))
    roll(windows, 2)
    assert windows.of(TOPIC) is NOTHING_YET


def test_new_window_is_shown_only_when_complete() -> None:
    windows = TopicWindows(0)
    roll(windows, 1, *(stats(100) for _ in range(64)))
    half = windows.roll([stats(300)] * 65, 2 * SECOND)
    next(half)
    assert windows.of(TOPIC).rate_in == 100
    assert next(half, None) is None
    assert windows.of(TOPIC).rate_in == 200


def test_second_roll_at_the_same_time_has_no_effect() -> None:
    windows = TopicWindows(SECOND)
    roll(windows, 1, stats(600))
    assert windows.of(TOPIC) is NOTHING_YET
    BrokerWindow(SECOND).roll(reading_of(), SECOND)


def test_broker_window_has_cache_rates_and_size_evictions() -> None:
    window = BrokerWindow(0)
    reading = reading_of(reads=reads(hits=50, hit_bytes=5000, misses=10))
    reading.manager.stats.size_evictions = 3
    window.roll(reading, 10 * SECOND)
    reading.manager.stats.size_evictions = 4
    window.roll(replace(reading, reads=reads(hits=70, hit_bytes=5200, misses=20)), 20 * SECOND)
    assert (window.hits_rate, window.hits_throughput) == (2, 20)
    assert (window.misses_rate, window.evictions) == (1, 1)


def test_write_latencies_are_summed_over_the_topics_of_the_window() -> None:
    windows = TopicWindows(0)
    roll(windows, 1, stats(100))
    roll(windows, 2, stats(110))
    assert windows.write_latency_ms.counts == (10,) + (0,) * 9


def test_topic_load_times_are_those_of_the_window() -> None:
    window = BrokerWindow(0)
    window.roll(reading_of(topic_loads=2, topic_loads_ms=[9.0, 1.0]), SECOND)
    assert window.topic_loads_ms == [1.0, 9.0]
    window.roll(reading_of(topic_loads=4, topic_loads_ms=[9.0, 1.0, 4.0, 2.0]), 2 * SECOND)
    assert window.topic_loads_ms == [2.0, 4.0]
    assert [quantile_of(window.topic_loads_ms, q) for q in (0.0, 0.5, 1.0)] == [2.0, 4.0, 4.0]
    assert math.isnan(quantile_of([], 0.5))


@pytest.mark.parametrize(
    ("counts", "q", "value"),
    [
        ((10, 0, 0), 0.5, 0.5),
        ((10, 0, 0), 1.0, 1.0),
        ((5, 5, 0), 0.5, 1.0),
        ((5, 5, 0), 0.9, 1.8),
        ((0, 10, 0), 0.0, 1.0),
        ((0, 0, 10), 0.5, 2.0),
    ],
)
def test_quantile_spreads_values_evenly_over_their_bucket(
    counts: tuple[int, ...], q: float, value: float
) -> None:
    assert quantile(Histogram((1, 2), counts, 0.0), q) == pytest.approx(value)


def test_quantile_is_nan_without_values() -> None:
    assert math.isnan(quantile(Histogram((1,), (0, 0), 0.0), 0.5))
