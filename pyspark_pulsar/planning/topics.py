"""Resolves a query's topics: names, lists and patterns become partitions and plain topics, sorted by name."""

from __future__ import annotations

import logging
import re
import time
from functools import lru_cache

from pyspark_pulsar.client.cluster import NOT_FOUND, Cluster
from pyspark_pulsar.errors import BrokerRefused, OptionError
from pyspark_pulsar.options import TopicChoice
from pyspark_pulsar.topic_names import PROBE_TOPIC, base_topic

log = logging.getLogger("pyspark_pulsar")

_WAIT_PAUSE_S = 5.0
_PERSISTENT = "persistent://"


def choose_topics(cluster: Cluster, choice: TopicChoice, *, wait: bool) -> list[str]:
    """Returns full names, sorted. With `wait`, blocks until all named topics exist.

    OptionError where a named topic does not exist. A pattern that fits nothing is no error, because topics may appear
    later.
    """
    while True:
        found = _matching(cluster, choice.pattern) if choice.pattern else _partitions(cluster, choice.names)
        if choice.pattern and not found:
            # No error, as topics may appear later; but said, because a mistake in the pattern gives no rows either.
            _say_no_match(choice.pattern)
        if found or choice.pattern:
            return found
        if not wait:
            names = ", ".join(choice.names)
            raise OptionError(
                f"no such topic: {names}; create it, or set waitingForNonExistedTopic=true to wait for it"
            )
        time.sleep(_WAIT_PAUSE_S)


@lru_cache
def _say_no_match(pattern: str) -> None:
    """Warns once per process: a stream lists its topics every few seconds."""
    log.warning("topicsPattern %s matches no topic at present", pattern)


def _partitions(cluster: Cluster, names: tuple[str, ...]) -> list[str]:
    """Returns the partitions and plain topics of `names`; empty if any of them is missing."""
    try:
        counts = cluster.partitions(names)
    except BrokerRefused as refused:
        if refused.code in NOT_FOUND:
            return []
        raise
    # A missing topic has 0 partitions like a plain one, so only the namespace's list shows that it is missing.
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
    """Splits topicsPattern into `tenant/namespace` and a pattern for full names.

    OptionError where the namespace part is itself a pattern: clients can list one namespace at a time.
    """
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
    """Returns the topics that fit; like in Pulsar's clients, a partition fits by the name without its number."""
    namespace, names = pattern_parts(pattern)
    return sorted(
        topic
        for topic in cluster.topics_of(namespace)
        # The sink's own topic: a pattern such as `.*` would read its empty messages as rows.
        if names.fullmatch(base_topic(topic)) and not base_topic(topic).endswith(f"/{PROBE_TOPIC}")
    )
