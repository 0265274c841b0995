"""Reads the text of `/metrics` of a broker or a bookie, ours or Apache's: the families that the screen shows.

A scrape of a thousand topics has tens of thousands of series. So the lines are chosen by name first, and only those
few go through prometheus_client's parser.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from magnetar.clients.client import CommandError

TOPIC_COUNTERS: Final = {
    "pulsar_in_messages_total": "in_messages",
    "pulsar_in_bytes_total": "in_bytes",
    "pulsar_out_messages_total": "out_messages",
    "pulsar_out_bytes_total": "out_bytes",
    "pulsar_ml_cache_x_topic_hits_total": "hits",
    "pulsar_ml_cache_x_topic_misses_total": "misses",
}
"""Counters of a topic, by the names that `magnetar.top.rates` gives them. The last two are Magnetar's own."""
TOPIC_GAUGES: Final = {
    "pulsar_msg_backlog": "backlog",
    "pulsar_storage_size": "storage_bytes",
    "pulsar_producers_count": "producers",
    "pulsar_consumers_count": "consumers",
    "pulsar_subscriptions_count": "subscriptions",
}
"""Gauges of a topic."""
SUBSCRIPTION: Final = {
    "pulsar_subscription_back_log": "backlog",
    "pulsar_subscription_unacked_messages": "unacked",
    "pulsar_subscription_delayed": "delayed",
    "pulsar_subscription_msg_rate_out": "out_messages",
    "pulsar_subscription_msg_throughput_out": "out_bytes",
    "pulsar_subscription_msg_rate_redeliver": "redelivered",
    "pulsar_subscription_consumers_count": "consumers",
    "pulsar_subscription_blocked_on_unacked_messages": "blocked",
    "pulsar_ml_cache_x_subscription_hits_total": "hits",
    "pulsar_ml_cache_x_subscription_misses_total": "misses",
}
"""Families of a subscription, by the names that `magnetar.top.rates` gives them. The last two are Magnetar's own."""
BROKER: Final = frozenset(
    {
        "pulsar_topics_count",
        "pulsar_ml_cache_used_size",
        "pulsar_ml_cache_hits_rate",
        "pulsar_ml_cache_misses_rate",
        "pulsar_ml_cache_evicted_entries_total",
        "pulsar_ml_cache_x_max_bytes",
        "pulsar_ml_cache_x_hits_total",
        "pulsar_ml_cache_x_misses_total",
        "pulsar_ml_cache_x_evicted_total",
        "pulsar_broker_publish_latency",
        "pulsar_version_info",
        "pulsar_active_connections",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "jvm_memory_direct_bytes_used",
    }
)
"""Families of a broker as a whole."""
BOOKIE: Final = frozenset(
    {
        "bookkeeper_server_ADD_ENTRY_count",
        "bookkeeper_server_READ_ENTRY_count",
        "bookie_journal_JOURNAL_SYNC",
        "bookie_WRITE_BYTES",
        "bookie_READ_BYTES",
        "bookie_read_cache_hits",
        "bookie_read_cache_misses",
        "bookie_write_cache_size",
        "bookie_ledgers_count",
        "bookie_entries_count",
        "bookie_SERVER_STATUS",
    }
)
"""Families of a bookie; Apache's standalone has them among the broker's."""
WANTED: Final = frozenset({*TOPIC_COUNTERS, *TOPIC_GAUGES, *BROKER, *BOOKIE})


class Sample(NamedTuple):
    """One series of a scrape."""

    labels: Mapping[str, str]
    """Its labels."""
    value: float
    """Its value, never NaN."""


Scrape = Mapping[str, list[Sample]]
"""The series of the families in `WANTED`, by the name of the series; of one topic those of `SUBSCRIPTION` too."""


def parse(text: str, topic: str = "") -> Scrape:
    """Returns the wanted series of a scrape. Raises CommandError for a text that is no scrape.

    `topic` is the full name of the topic whose subscriptions are wanted; "" for none.
    """
    found: dict[str, list[Sample]] = {}
    try:
        # Not splitlines(), which would also cut at U+2028 and the like within the name of a topic.
        for family in text_string_to_metric_families("\n".join(_chosen(text.split("\n"), topic)) + "\n"):
            for sample in family.samples:
                if not math.isnan(sample.value):
                    found.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
    except ValueError as error:
        raise CommandError(f"the answer to /metrics cannot be read: {error}") from None
    if not found and "# TYPE " not in text:
        raise CommandError("the answer to /metrics has no metrics in it: name a broker with --admin-url")
    return found


def _chosen(lines: Iterable[str], topic: str) -> Iterator[str]:
    # The subscriptions of all topics would be ten times as many lines. A broker that splits names has the partition in a
    # label of its own.
    labels = tuple(f'topic="{_escaped(name)}"' for name in {topic, _without_partition(topic)} if name)
    for line in lines:
        name = line.partition("{")[0].partition(" ")[0]
        if name in WANTED or (name in SUBSCRIPTION and any(label in line for label in labels)):
            yield line


def _escaped(name: str) -> str:
    """Returns a label's value as it stands in a scrape."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _without_partition(topic: str) -> str:
    base, partition, number = topic.rpartition("-partition-")
    return base if partition and number.isdecimal() else topic
