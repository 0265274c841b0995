"""Rates between two scrapes: of our broker, and of a recording of Apache Pulsar 4.2.4."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.units import NS_PER_SECOND
from magnetar.clients.client import CommandError
from magnetar.top.rates import Scrapes, overview, subscriptions
from magnetar.top.scrape import WANTED, parse

APACHE = (Path(__file__).parent / "apache_4_2_4.txt").read_text()
TOPIC = 'cluster="c",namespace="n/s",topic="persistent://n/s/t"'


def reading(seconds: float, broker: str, bookie: str | None = None) -> Scrapes:
    scrape = parse(broker)
    return Scrapes(int(seconds * NS_PER_SECOND), scrape, scrape if bookie is None else parse(bookie))


def ours(messages: int, hits: int, misses: int) -> str:
    return (
        f"# TYPE x gauge\npulsar_in_messages_total{{{TOPIC}}} {messages}\n"
        f"pulsar_out_messages_total{{{TOPIC}}} {2 * messages}\n"
        f'pulsar_out_messages_total{{{TOPIC},subscription="s"}} {messages}\n'
        f'pulsar_out_messages_total{{{TOPIC},subscription="u"}} {messages}\n'
        f"pulsar_msg_backlog{{{TOPIC}}} 7\n"
        'pulsar_msg_backlog{cluster="c"} 0\n'
        f"pulsar_ml_cache_x_topic_hits_total{{{TOPIC}}} {hits}\n"
        f"pulsar_ml_cache_x_topic_misses_total{{{TOPIC}}} {misses}\n"
        f'pulsar_ml_cache_x_hits_total{{cluster="c"}} {hits}\n'
        f'pulsar_ml_cache_x_misses_total{{cluster="c"}} {misses}\n'
        'pulsar_ml_cache_x_evicted_total{cluster="c",reason="ttl"} 4\n'
        'pulsar_ml_cache_x_max_bytes{cluster="c"} 1024\n'
        'pulsar_ml_cache_hits_rate{cluster="c"} 99\n'
    )


def test_counters_become_rates_between_two_readings() -> None:
    found = overview(reading(10, ours(100, 10, 10)), reading(12, ours(300, 40, 20)))
    (topic,) = found.topics
    assert (topic.name, topic.figures["in_messages"], topic.figures["out_messages"]) == (
        "persistent://n/s/t",
        100.0,
        200.0,
    )
    assert topic.figures["hit_ratio"] == 0.75
    assert (found.seconds, found.broker["in_messages"], found.broker["backlog"]) == (2.0, 100.0, 7.0)
    assert (found.cache["hits"], found.cache["misses"], found.cache["hit_ratio"]) == (15.0, 5.0, 0.75)
    assert found.cache["max_bytes"] == 1024


def test_first_reading_has_values_and_no_rates() -> None:
    found = overview(None, reading(10, ours(100, 10, 10)))
    assert (found.seconds, found.broker["in_messages"], found.broker["cpu"], found.cache["hit_ratio"]) == (
        0.0,
        0.0,
        None,
        None,
    )
    assert found.broker["backlog"] == 7.0


def test_counter_of_a_restarted_broker_counts_from_zero() -> None:
    found = overview(reading(0, ours(100, 0, 0)), reading(2, ours(20, 0, 0)))
    assert found.topics[0].figures["in_messages"] == 10.0


def test_topic_that_is_new_counts_from_zero() -> None:
    found = overview(reading(0, "# TYPE x gauge\n"), reading(2, ours(20, 0, 0)))
    assert found.topics[0].figures["in_messages"] == 10.0


def test_partition_label_becomes_the_name_of_the_partition() -> None:
    text = 'pulsar_in_messages_total{namespace="n/s",topic="persistent://n/s/p",partition="3"} 4\n'
    text += 'pulsar_in_messages_total{namespace="n/s",topic="persistent://n/s/q",partition="-1"} 4\n'
    names = [topic.name for topic in overview(None, reading(0, text)).topics]
    assert names == ["persistent://n/s/p-partition-3", "persistent://n/s/q"]


def test_namespace_stands_for_topics_that_are_not_exposed() -> None:
    found = overview(None, reading(0, 'pulsar_msg_backlog{cluster="c",namespace="n/s"} 3\n'))
    assert [(topic.name, topic.figures["backlog"]) for topic in found.topics] == [("n/s", 3.0)]


def test_recording_of_apache_is_understood() -> None:
    later = APACHE.replace('subscription="s"} 489', 'subscription="s"} 689')
    found = overview(reading(0, APACHE), reading(2, later))
    by_name = {topic.name.rpartition("/")[2]: topic for topic in found.topics}
    b = by_name["b"].figures
    assert b["out_messages"] == 100.0
    assert (b["backlog"], b["producers"], b["storage_bytes"]) == (9.0, 1, 263103.0)
    assert b["hit_ratio"] is None
    assert (found.version, found.broker["topics_count"], found.broker["connections"]) == ("4.2.4", 3.0, 5.0)
    assert found.publish_ms["0.99"] == 263.464
    # No counters of hits: the rates of its last window.
    assert (found.cache["hits"], found.cache["hit_ratio"], found.cache["max_bytes"]) == (
        6.734006734006734,
        1.0,
        None,
    )
    assert found.bookie is None


def test_bookie_on_its_own_is_read_from_its_port() -> None:
    def bookie(count: int) -> str:
        return (
            f'bookkeeper_server_ADD_ENTRY_count{{success="true"}} {count}\n'
            f'bookkeeper_server_ADD_ENTRY_count{{success="false"}} {count}\n'
            f"bookie_WRITE_BYTES {100 * count}\n"
            'bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99"} 1.5\n'
            'bookie_journal_JOURNAL_SYNC{success="false",quantile="0.99"} NaN\n'
            "bookie_SERVER_STATUS 0\n"
        )

    found = overview(reading(0, ours(0, 0, 0), bookie(10)), reading(2, ours(0, 0, 0), bookie(30))).bookie
    assert found is not None
    assert (found["adds"], found["write_bytes"], found["sync_ms"], found["writable"]) == (
        10.0,
        1000.0,
        1.5,
        False,
    )
    assert found["read_cache_hit_ratio"] is None


def test_only_wanted_families_are_parsed() -> None:
    text = APACHE + 'some_other{broken="\n' * 3
    assert set(parse(text)) <= WANTED


def test_names_with_line_separators_of_unicode_are_read() -> None:
    name = "persistent://n/s/a\u2028b\x85c"
    found = parse(f'# TYPE x gauge\npulsar_msg_backlog{{namespace="n/s",topic="{name}"}} 3\n')
    assert [sample.labels["topic"] for sample in found["pulsar_msg_backlog"]] == [name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<html>", "has no metrics in it"),
        ("", "has no metrics in it"),
        ('pulsar_msg_backlog{topic="t} x', "cannot be read"),
    ],
)
def test_answer_that_is_no_scrape_is_named(text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        parse(text)


@pytest.mark.parametrize(
    ("topic", "labels"),
    [
        ("persistent://n/s/t", 'topic="persistent://n/s/t"'),
        ("persistent://n/s/t-partition-3", 'topic="persistent://n/s/t-partition-3"'),
        ("persistent://n/s/t-partition-3", 'topic="persistent://n/s/t",partition="3"'),
        ('persistent://n/s/a"b\\c', 'topic="persistent://n/s/a\\"b\\\\c"'),
    ],
)
def test_subscriptions_of_one_topic_are_read(topic: str, labels: str) -> None:
    names = "".join(
        f'pulsar_subscription_{metric}{{cluster="c",{where},subscription="s"}} {value}\n'
        for where, factor in ((labels, 1), ('topic="persistent://n/s/t-other"', 100))
        for metric, value in (
            ("back_log", 4 * factor),
            ("blocked_on_unacked_messages", 1),
            ("msg_rate_out", 2.5),
        )
    )
    (found,) = subscriptions(parse(f"# TYPE x gauge\n{names}", topic), topic)
    assert (found.name, found.figures["backlog"]) == ("s", 4)
    assert (found.figures["blocked"], found.figures["out_messages"]) == (1, 2.5)
    assert found.figures["hit_ratio"] is None
    assert subscriptions(parse(f"# TYPE x gauge\n{names}"), topic) == []
