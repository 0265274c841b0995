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
from magnetar.top.figures import BOOKIE, BROKER, CACHE, SUBSCRIPTION, TOPIC, families_of

LATENCY: Final = "pulsar_broker_publish_latency"
"""The summary of publish latencies."""
WANTED: Final = families_of(TOPIC, BROKER, CACHE, BOOKIE) | {LATENCY, "pulsar_version_info"}
"""The families of a scrape that are read."""
_OF_SUBSCRIPTIONS: Final = families_of(SUBSCRIPTION)


class Sample(NamedTuple):
    """One series of a scrape."""

    labels: Mapping[str, str]
    """Its labels."""
    value: float
    """Its value, never NaN."""


Scrape = Mapping[str, list[Sample]]
"""The series of the families in `WANTED`, by the name of the series; of one topic those of its subscriptions too."""


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
        if name in WANTED or (name in _OF_SUBSCRIPTIONS and any(label in line for label in labels)):
            yield line


def _escaped(name: str) -> str:
    """Returns a label's value as it stands in a scrape."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _without_partition(topic: str) -> str:
    base, partition, number = topic.rpartition("-partition-")
    return base if partition and number.isdecimal() else topic
