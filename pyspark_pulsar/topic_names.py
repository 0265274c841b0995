"""Topic names in their full form, and partitions' names."""

from __future__ import annotations

from pyspark_pulsar.errors import OptionError


def full_topic_name(name: str) -> str:
    """`persistent://tenant/namespace/topic` for any of the three forms of a name. OptionError."""
    if name.startswith("non-persistent://"):
        raise OptionError(f"{name}: a non-persistent topic keeps nothing that could be read or written again")
    rest = name.removeprefix("persistent://").split("/")
    if len(rest) == 1 and rest[0] and "://" not in name:
        return f"persistent://public/default/{rest[0]}"
    if len(rest) != 3 or not all(rest):
        raise OptionError(
            f"{name!r} is no topic name: topic, tenant/namespace/topic or persistent://… is expected"
        )
    return f"persistent://{'/'.join(rest)}"


def base_topic(topic: str) -> str:
    """The partitioned topic that a partition is of; any other name as it is."""
    base, mark, number = topic.rpartition("-partition-")
    return base if mark and number.isdigit() else topic


def partition_of(topic: str) -> int:
    """-1 for a topic that is no partition of another."""
    base = base_topic(topic)
    return -1 if base == topic else int(topic[len(base) + len("-partition-") :])
