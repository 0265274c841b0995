"""The words of the screen: which topics in which order, columns, numbers with units. All functions are pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final

from magnetar.clients.client import visible
from magnetar.top.rates import Overview, Subscription, Topic

SORTS: Final[dict[str, Callable[[Topic], float]]] = {
    "rate": lambda topic: topic.in_messages + topic.out_messages,
    "bytes": lambda topic: topic.in_bytes + topic.out_bytes,
    "backlog": lambda topic: topic.backlog,
    "storage": lambda topic: topic.storage_bytes,
    # A topic without reads stands behind one whose reads all hit.
    "misses": lambda topic: -1.0 if topic.hit_ratio is None else 1.0 - topic.hit_ratio,
}
"""Orders of topics, the largest first; topics with equal values stand by name."""
TITLES: Final = (
    "topic",
    "in/s",
    "in B/s",
    "out/s",
    "out B/s",
    "backlog",
    "storage",
    "hits",
    "prod",
    "cons",
    "subs",
)
"""Titles of the columns of `row`."""

SUBSCRIPTION_TITLES: Final = (
    "subscription",
    "backlog",
    "unacked",
    "delayed",
    "out/s",
    "out B/s",
    "again/s",
    "hits",
    "cons",
    "state",
)
"""Titles of the columns of `subscription_row`."""


def chosen(topics: Sequence[Topic], sort: str, text: str, limit: int | None = None) -> list[Topic]:
    """Returns the topics whose name has `text` in it, in the order of `sort`, at most `limit`."""
    measure = SORTS[sort]
    found = [topic for topic in topics if text.lower() in topic.name.lower()]
    found.sort(key=lambda topic: (-measure(topic), topic.name))
    return found[:limit]


def row(topic: Topic) -> tuple[str, ...]:
    """Returns the cells of a topic; `persistent://` is left out of its name."""
    return (
        visible(topic.name.removeprefix("persistent://")),
        count(topic.in_messages),
        size(topic.in_bytes),
        count(topic.out_messages),
        size(topic.out_bytes),
        count(topic.backlog),
        size(topic.storage_bytes),
        percent(topic.hit_ratio),
        str(topic.producers),
        str(topic.consumers),
        str(topic.subscriptions),
    )


def subscription_row(found: Subscription) -> tuple[str, ...]:
    """Returns the cells of a subscription."""
    return (
        visible(found.name),
        count(found.backlog),
        count(found.unacked),
        count(found.delayed),
        count(found.out_messages),
        size(found.out_bytes),
        count(found.redelivered),
        percent(found.hit_ratio),
        str(found.consumers),
        "BLOCKED" if found.blocked else "",
    )


def topic_line(topic: Topic) -> str:
    """Returns the line above the subscriptions of a topic."""
    return (
        f"topic    {visible(topic.name)}   in {count(topic.in_messages)}/s, {size(topic.in_bytes)}/s"
        f"   out {count(topic.out_messages)}/s, {size(topic.out_bytes)}/s   backlog {count(topic.backlog)}"
        f"   storage {size(topic.storage_bytes)}   hits {percent(topic.hit_ratio)}   producers {topic.producers}"
    )


def head(found: Overview) -> list[str]:
    """Returns the lines above the table: broker, traffic, cache, and a bookie if there is one."""
    latency = ", ".join(
        f"p{float(quantile) * 100:g} {found.publish_ms[quantile]:.1f} ms"
        for quantile in ("0.5", "0.99")
        if quantile in found.publish_ms
    )
    cpu = "" if found.cpu is None else f"   cpu {found.cpu:.2f} cores"
    memory = "" if found.memory_bytes is None else f"   memory {size(found.memory_bytes)}"
    cache = found.cache
    limit = "" if cache.max_bytes is None else f" of {size(cache.max_bytes)}"
    lines = [
        f"broker   {visible(found.version) or 'version unknown'}   topics {count(found.topics_count)}"
        f"   connections {count(found.connections)}   backlog {count(found.backlog)}{cpu}{memory}",
        f"traffic  in {count(found.in_messages)}/s, {size(found.in_bytes)}/s"
        f"   out {count(found.out_messages)}/s, {size(found.out_bytes)}/s   publish {latency or 'latency unknown'}",
        f"cache    hits {percent(cache.hit_ratio)}   {count(cache.hits)}/s from the cache"
        f"   {count(cache.misses)}/s from storage   evicted {count(cache.evictions)}/s   {size(cache.used_bytes)}{limit}",
    ]
    bookie = found.bookie
    if bookie is not None:
        sync = "" if bookie.sync_ms is None else f"   sync p99 {bookie.sync_ms:.1f} ms"
        lines.append(
            f"bookie   adds {count(bookie.adds)}/s, {size(bookie.write_bytes)}/s"
            f"   reads {count(bookie.reads)}/s, {size(bookie.read_bytes)}/s{sync}"
            f"   read cache {percent(bookie.read_cache_hit_ratio)}   ledgers {count(bookie.ledgers)}"
            f"{'' if bookie.writable else '   READ-ONLY'}"
        )
    return lines


def as_table(found: Overview, topics: Sequence[Topic]) -> str:
    """Returns head and topics as plain text."""
    cells = [TITLES, *map(row, topics)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(TITLES))]
    lines = [
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
            ]
        )
        for line in cells
    ]
    return "\n".join([*head(found), "", *lines])


def as_json(found: Overview, topics: Sequence[Topic]) -> str:
    """Returns everything as one JSON object, with the topics given."""
    return json.dumps(asdict(replace(found, topics=tuple(topics))), ensure_ascii=False)


def count(value: float) -> str:
    """Returns a number in at most five characters: 0.2, 17, 4.1k, 12M."""
    return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def size(value: float) -> str:
    """Returns bytes in at most seven characters: 17 B, 4.1 KiB, 12 MiB."""
    return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def percent(ratio: float | None) -> str:
    """Returns a ratio as 98.5 %, or a dash for None."""
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if abs(value) < base:
            return f"{_short(value)}{unit}"
        value /= base
    return f"{_short(value)}{units[-1]}"


def _short(value: float) -> str:
    return f"{value:.1f}" if 0 < abs(value) < 9.95 and abs(value - round(value)) >= 0.05 else f"{value:.0f}"
