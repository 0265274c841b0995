"""Topic names: their full form, and the names of partitions. Used by source and sink on driver and workers."""

from __future__ import annotations

from typing import Final

from pyspark_pulsar.errors import OptionError

PROBE_TOPIC: Final = "__pyspark_pulsar_probe"
"""Topic of a namespace in which the sink finds out about deduplication; `topicsPattern` never matches it."""


def full_topic_name(name: str) -> str:
    """Returns `persistent://tenant/namespace/topic` for `topic`, `tenant/namespace/topic` or the full form.

    OptionError for other texts and for non-persistent topics.
    """
    if name.startswith("non-persistent://"):
        raise OptionError(f"{name} is non-persistent: its messages are not stored; use a persistent:// topic")
    rest = name.removeprefix("persistent://").split("/")
    if len(rest) == 1 and rest[0] and "://" not in name:
        return f"persistent://public/default/{rest[0]}"
    if len(rest) != 3 or not all(rest):
        raise OptionError(
            f"{name!r} is no topic name: topic, tenant/namespace/topic or persistent://… is expected"
        )
    return f"persistent://{'/'.join(rest)}"


def base_topic(topic: str) -> str:
    """Returns the partitioned topic's name for a partition's name, any other name unchanged."""
    base, mark, number = topic.rpartition("-partition-")
    return base if mark and number.isdigit() else topic


def partition_of(topic: str) -> int:
    """Returns the number at the end of a partition's name, -1 for a topic that is no partition."""
    base = base_topic(topic)
    return -1 if base == topic else int(topic[len(base) + len("-partition-") :])
