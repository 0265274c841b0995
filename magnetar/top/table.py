"""The lines above every view, and the topics and subscriptions in rows. All functions are pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final, Generic, NamedTuple, TypeVar

from magnetar.clients.client import visible
from magnetar.top.bookie_view import bookies_head
from magnetar.top.numbers import count, milliseconds, percent, publish_latency, rate, size
from magnetar.top.rates import Overview, SubscriptionRates, TopicRates

SORTS: Final[dict[str, Callable[[TopicRates], float]]] = {
    "rate": lambda topic: topic.in_messages + topic.out_messages,
    "bytes": lambda topic: topic.in_bytes + topic.out_bytes,
    "backlog": lambda topic: topic.backlog,
    "storage": lambda topic: topic.storage_bytes,
    # A topic without reads stands after one whose reads all hit.
    "misses": lambda topic: -1.0 if topic.hit_ratio is None else 1.0 - topic.hit_ratio,
}
"""Orders of topics, the largest first; topics with equal values stand by name."""


Shown = TypeVar("Shown", TopicRates, SubscriptionRates)
"""A row of a table."""


class Column(NamedTuple, Generic[Shown]):
    """A column of the topics, or of the subscriptions of one."""

    title: str
    """Its title."""
    cell: Callable[[Shown], str]
    """Returns the text of a cell."""
    minor: bool = False
    """True if a narrow screen has no room for it."""


COLUMNS: Final[tuple[Column[TopicRates], ...]] = (
    Column("topic", lambda topic: visible(topic.name.removeprefix("persistent://"))),
    Column("in/s", lambda topic: count(topic.in_messages)),
    Column("in B/s", lambda topic: size(topic.in_bytes), minor=True),
    Column("out/s", lambda topic: count(topic.out_messages)),
    Column("out B/s", lambda topic: size(topic.out_bytes), minor=True),
    Column("backlog", lambda topic: count(topic.backlog)),
    Column("storage", lambda topic: size(topic.storage_bytes)),
    Column("hits", lambda topic: percent(topic.hit_ratio)),
    Column("prod", lambda topic: str(topic.producers), minor=True),
    Column("cons", lambda topic: str(topic.consumers)),
    Column("subs", lambda topic: str(topic.subscriptions), minor=True),
)
"""The columns of the topics."""

SUBSCRIPTION_COLUMNS: Final[tuple[Column[SubscriptionRates], ...]] = (
    Column("subscription", lambda one: visible(one.name)),
    Column("backlog", lambda one: count(one.backlog)),
    Column("unacked", lambda one: count(one.unacked)),
    Column("delayed", lambda one: count(one.delayed)),
    Column("out/s", lambda one: count(one.out_messages)),
    Column("out B/s", lambda one: size(one.out_bytes)),
    Column("again/s", lambda one: count(one.redelivered)),
    Column("hits", lambda one: percent(one.hit_ratio)),
    Column("cons", lambda one: str(one.consumers)),
    Column("state", lambda one: "BLOCKED" if one.blocked else ""),
)
"""The columns of the subscriptions of a topic."""


def chosen(topics: Sequence[TopicRates], sort: str, text: str, limit: int | None = None) -> list[TopicRates]:
    """Returns the topics whose name has `text` in it, in the order of `sort`, at most `limit`."""
    measure = SORTS[sort]
    found = [topic for topic in topics if text.lower() in topic.name.lower()]
    found.sort(key=lambda topic: (-measure(topic), topic.name))
    return found[:limit]


def columns(*, narrow: bool) -> list[Column[TopicRates]]:
    """Returns the columns for a screen; `narrow`: without the minor ones."""
    return [column for column in COLUMNS if not (narrow and column.minor)]


def topic_line(topic: TopicRates) -> str:
    """Returns the line above the subscriptions of a topic."""
    return (
        f"topic    {visible(topic.name)}  in {rate(topic.in_messages)} {size(topic.in_bytes)}/s"
        f"  out {rate(topic.out_messages)} {size(topic.out_bytes)}/s  backlog {count(topic.backlog)}"
        f"  storage {size(topic.storage_bytes)}  hits {percent(topic.hit_ratio)}  producers {topic.producers}"
    )


def head(found: Overview) -> list[str]:
    """Returns the lines above every view: broker, traffic, cache, and bookies if they are known.

    Usual values leave a line below 80 characters.
    """
    latency = ", ".join(
        f"p{float(quantile) * 100:g} {publish_latency(found.publish_ms[quantile])}"
        for quantile in ("0.5", "0.99")
        if quantile in found.publish_ms
    )
    cpu = "" if found.cpu is None else f"  cpu {found.cpu:.2f}"
    memory = "" if found.memory_bytes is None else f"  memory {size(found.memory_bytes)}"
    cache = found.cache
    limit = "" if cache.max_bytes is None else f" of {size(cache.max_bytes)}"
    lines = [
        f"broker   {visible(found.version) or 'version unknown'}  topics {count(found.topics_count)}"
        f"  connections {count(found.connections)}  backlog {count(found.backlog)}{cpu}{memory}",
        f"traffic  in {rate(found.in_messages)} {size(found.in_bytes)}/s"
        f"  out {rate(found.out_messages)} {size(found.out_bytes)}/s  publish (1 min) {latency or '-'}",
        f"cache    hits {percent(cache.hit_ratio)} ({rate(cache.hits)})  misses {rate(cache.misses)}"
        f"  evicted {rate(cache.evictions)}  {size(cache.used_bytes)}{limit}",
    ]
    bookie = found.bookie
    if bookie is not None:
        lines.append(
            f"bookie   {'' if bookie.writable else 'READ-ONLY  '}adds {rate(bookie.adds)} {size(bookie.write_bytes)}/s"
            f"  reads {rate(bookie.reads)} {size(bookie.read_bytes)}/s  sync p99 {milliseconds(bookie.sync_ms)}"
            f"  read cache {percent(bookie.read_cache_hit_ratio)}  ledgers {count(bookie.ledgers)}"
        )
    elif found.bookies:
        lines.append(bookies_head(found.bookies))
    return lines


def as_table(found: Overview, topics: Sequence[TopicRates]) -> str:
    """Returns head and topics as plain text."""
    cells = [
        tuple(column.title for column in COLUMNS),
        *(tuple(column.cell(topic) for column in COLUMNS) for topic in topics),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
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


def as_json(found: Overview, topics: Sequence[TopicRates]) -> str:
    """Returns everything as one JSON object, with the topics given."""
    return json.dumps(asdict(replace(found, topics=tuple(topics))), ensure_ascii=False)
