"""Which topics a query reads: names, lists and patterns become partitions and plain topics, in order of their names."""

from __future__ import annotations

import re
import time

from pyspark_pulsar.client.cluster import NOT_FOUND, Cluster
from pyspark_pulsar.errors import BrokerRefused, OptionError
from pyspark_pulsar.options import TopicChoice
from pyspark_pulsar.topic_names import base_topic

WAIT_PAUSE_S = 5.0
_PERSISTENT = "persistent://"


def choose_topics(cluster: Cluster, choice: TopicChoice, *, wait: bool) -> list[str]:
    """OptionError where there is no such topic, unless `wait`: then until there is one."""
    while True:
        found = _matching(cluster, choice.pattern) if choice.pattern else _partitions(cluster, choice.names)
        if found or choice.pattern:
            return found
        if not wait:
            names = ", ".join(choice.names)
            raise OptionError(
                f"no such topic: {names}; create it, or set waitingForNonExistedTopic=true to wait for it"
            )
        time.sleep(WAIT_PAUSE_S)


def _partitions(cluster: Cluster, names: tuple[str, ...]) -> list[str]:
    """Empty as long as one of the topics is missing."""
    try:
        counts = cluster.partitions(names)
    except BrokerRefused as refused:
        if refused.code in NOT_FOUND:
            return []
        raise
    there = {
        topic for namespace in {_namespace(name) for name in names} for topic in cluster.topics_of(namespace)
    }
    there |= {base_topic(topic) for topic in there}
    found = []
    for name, count in zip(names, counts, strict=True):
        if name not in there and not count:
            return []
        found += [f"{name}-partition-{number}" for number in range(count)] if count else [name]
    return sorted(found)


def _namespace(name: str) -> str:
    tenant, namespace, _ = name.removeprefix(_PERSISTENT).split("/")
    return f"{tenant}/{namespace}"


def pattern_parts(pattern: str) -> tuple[str, re.Pattern[str]]:
    """The namespace that a pattern looks in, and the pattern for whole names in it. OptionError."""
    rest = pattern.removeprefix(_PERSISTENT)
    parts = rest.split("/", 2)
    if len(parts) == 1:
        parts = ["public", "default", rest]
    if len(parts) != 3 or any(re.escape(part) != part.replace("-", r"\-") for part in parts[:2]):
        raise OptionError(
            f"topicsPattern is {pattern!r}: a pattern for names in one namespace is expected, "
            "such as persistent://tenant/namespace/sensor-.*"
        )
    prefix = re.escape(f"{_PERSISTENT}{parts[0]}/{parts[1]}/")
    return f"{parts[0]}/{parts[1]}", re.compile(f"{prefix}(?:{parts[2]})")


def _matching(cluster: Cluster, pattern: str) -> list[str]:
    """As Pulsar's clients match: a partition belongs to a pattern that its topic's name fits."""
    namespace, names = pattern_parts(pattern)
    return sorted(topic for topic in cluster.topics_of(namespace) if names.fullmatch(base_topic(topic)))
