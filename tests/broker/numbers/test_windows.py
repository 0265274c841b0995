"""Windows: the growth of counters between two rolls, per second."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from broker.metrics.broker_window import BrokerWindow
from broker.numbers.columns import Columns, Number
from broker.numbers.readings import CONSUMERS, PRODUCERS, SUBSCRIPTIONS, TOPICS, TopicReading
from broker.numbers.windows import (
    NOTHING_YET,
    Histogram,
    TopicWindow,
    TopicWindows,
    Window,
    quantile,
    quantile_of,
)
from tests.broker.metrics.readings_of import reading_of, reads
from tests.broker.numbers.rows_of import consumer_of, producer_of, subscription_of, topic_of

SECOND = 1_000_000_000
TOPIC = "persistent://public/default/orders"


def stats(messages_in: int) -> TopicReading:
    return topic_of(
        "public/default",
        TOPIC,
        messages_in=messages_in,
        bytes_in=messages_in * 100,
        added=messages_in,
        parts={"write_latency": (messages_in,) + (0,) * 9},
        subscriptions=[
            subscription_of(
                "s",
                [consumer_of("c", 1, messages_out=messages_in)],
                messages_out=messages_in * 2,
                messages_redelivered=messages_in // 2,
            )
        ],
        publishers=[producer_of("p", 1, messages_in=messages_in)],
    )


def rate(columns: Columns, window: TopicWindow | Window, family: str) -> Number:
    return columns.picker({"it": family})(window.row)["it"]


def rate_in(windows: TopicWindows) -> Number:
    return rate(TOPICS, windows.of(TOPIC), "pulsar_rate_in")


def roll(windows: TopicWindows, at_s: int, *topics: TopicReading) -> None:
    for _ in windows.roll(topics, at_s * SECOND):
        pass


def test_window_has_the_growth_since_the_last_roll_per_second() -> None:
    windows = TopicWindows(0)
    assert windows.of(TOPIC) is NOTHING_YET
    roll(windows, 60, stats(600))
    assert rate_in(windows) == 10
    roll(windows, 120, stats(900))
    window = windows.of(TOPIC)
    assert (rate_in(windows), rate(TOPICS, window, "pulsar_throughput_in"), window.mean_size) == (5, 500, 100)
    assert rate(TOPICS, window, "pulsar_storage_write_latency_count") == 300
    assert window.write_latency == (300,) + (0,) * 9
    subscription = window.subscriptions["s", 0]
    assert rate(SUBSCRIPTIONS, subscription, "pulsar_subscription_msg_rate_out") == 10
    assert rate(SUBSCRIPTIONS, subscription, "pulsar_subscription_msg_rate_redeliver") == 2.5
    assert rate(CONSUMERS, subscription.parts["c", 1], "pulsar_consumer_msg_rate_out") == 5
    assert rate(PRODUCERS, window.producers["p", 1], "pulsar_producer_msg_rate_in") == 5


def test_rates_are_zero_again_after_an_idle_window() -> None:
    windows = TopicWindows(0)
    roll(windows, 60, stats(600))
    roll(windows, 61, stats(600))
    assert rate_in(windows) == 0
    assert windows.of(TOPIC).mean_size == 0


def test_counters_that_fell_count_from_zero() -> None:
    windows = TopicWindows(0)
    roll(windows, 1, stats(600))
    roll(windows, 2, stats(7))
    assert rate_in(windows) == 7
    assert windows.of(TOPIC).write_latency[0] == 7


def test_non_persistent_topic_counts_from_zero_when_its_messages_fell() -> None:
    windows = TopicWindows(0)
    for at_s, count in ((1, 600), (2, 7)):
        roll(windows, at_s, topic_of("public/default", TOPIC, messages_in=count, bytes_in=count * 10))
    assert (rate_in(windows), rate(TOPICS, windows.of(TOPIC), "pulsar_throughput_in")) == (7, 70)


def test_entries_that_were_given_back_are_no_restart() -> None:
    windows = TopicWindows(0)
    for at_s, count, failed in ((1, 600, 9), (2, 590, 2)):
        roll(windows, at_s, topic_of("public/default", TOPIC, read=count, read_errors=failed))
    window = windows.of(TOPIC)
    assert rate(TOPICS, window, "pulsar_storage_read_latency_count") == -10
    assert rate(TOPICS, window, "pulsar_ml_ReadEntriesErrors") == 2


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
    assert rate_in(windows) == 100
    assert next(half, None) is None
    assert rate_in(windows) == 200


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
