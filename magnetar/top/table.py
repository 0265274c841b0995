"""The lines above every view, and the topics and subscriptions in rows. All functions are pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.clients.client import visible
from magnetar.top.bookie_view import bookies_head
from magnetar.top.figures import BOOKIE, BROKER, CACHE, TOPIC, Figure, texts_of
from magnetar.top.numbers import publish_latency
from magnetar.top.rates import SUMMED, Named, Overview


def _total(*names: str) -> Callable[[Named], float]:
    return lambda topic: sum(topic.figures[name] or 0.0 for name in names)


def _misses(topic: Named) -> float:
    # A topic without reads stands after one whose reads all hit.
    hits = topic.figures["hit_ratio"]
    return -1.0 if hits is None else 1.0 - hits


SORTS: Final[dict[str, Callable[[Named], float]]] = {
    "rate": _total("in_messages", "out_messages"),
    "bytes": _total("in_bytes", "out_bytes"),
    "backlog": _total("backlog"),
    "storage": _total("storage_bytes"),
    "misses": _misses,
}
"""Orders of topics, the largest first; topics with equal values stand by name."""
_TRAFFIC: Final = "in {in_messages}/s {in_bytes}/s  out {out_messages}/s {out_bytes}/s"
_HEAD: Final = (
    "broker   {version}  topics {topics_count}  connections {connections}  backlog {backlog}{cpu}{memory_bytes}",
    f"traffic  {_TRAFFIC}  publish (1 min) {{latency}}",
)
_CACHE: Final = (
    "cache    hits {hit_ratio} ({hits}/s)  misses {misses}/s  evicted {evictions}/s  {used_bytes}{max_bytes}"
)
_BOOKIE: Final = (
    "bookie   {writable}adds {adds}/s {write_bytes}/s  reads {reads}/s {read_bytes}/s  sync p99 {sync_ms}"
    "  read cache {read_cache_hit_ratio}  ledgers {ledgers}"
)
_TOPIC: Final = (
    f"topic    {{name}}  {_TRAFFIC}  backlog {{backlog}}"
    "  storage {storage_bytes}  hits {hit_ratio}  producers {producers}"
)


def chosen(topics: Sequence[Named], sort: str, text: str, limit: int | None = None) -> list[Named]:
    """Returns the topics whose name has `text` in it, in the order of `sort`, at most `limit`."""
    measure = SORTS[sort]
    found = [topic for topic in topics if text.lower() in topic.name.lower()]
    found.sort(key=lambda topic: (-measure(topic), topic.name))
    return found[:limit]


def cells_of(
    table: tuple[Figure, ...], first: str, rows: Sequence[Named], *, narrow: bool = False
) -> list[tuple[str, ...]]:
    """Returns the titles, `first` and those of the figures, and the cells of each row; `narrow`: no minor columns."""
    shown = [figure for figure in table if not (narrow and figure.minor)]
    return [
        (first, *[figure.title for figure in shown]),
        *(
            (
                visible(row.name.removeprefix("persistent://")),
                *[figure.text(row.figures[figure.name]) for figure in shown],
            )
            for row in rows
        ),
    ]


def topic_line(topic: Named) -> str:
    """Returns the line above the subscriptions of a topic."""
    return _TOPIC.format(name=visible(topic.name), **texts_of(TOPIC, topic.figures))


def head(found: Overview) -> list[str]:
    """Returns the lines above every view: broker, traffic, cache, and bookies if they are known.

    Usual values leave a line below 80 characters.
    """
    latency = ", ".join(
        f"p{float(quantile) * 100:g} {publish_latency(found.publish_ms[quantile])}"
        for quantile in ("0.5", "0.99")
        if quantile in found.publish_ms
    )
    broker = {
        "version": visible(found.version) or "version unknown",
        "latency": latency or "-",
        **texts_of((*[figure for figure in TOPIC if figure.name in SUMMED], *BROKER), found.broker),
    }
    lines = [*(line.format_map(broker) for line in _HEAD), _CACHE.format_map(texts_of(CACHE, found.cache))]
    if found.bookie is not None:
        lines.append(_BOOKIE.format_map(texts_of(BOOKIE, found.bookie)))
    elif found.bookies:
        lines.append(bookies_head(found.bookies))
    return lines


def as_table(found: Overview, topics: Sequence[Named]) -> str:
    """Returns head and topics as plain text."""
    cells = cells_of(TOPIC, "topic", topics)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]) for name, *numbers in cells
    ]
    return "\n".join([*head(found), "", *lines])


def as_json(found: Overview, topics: Sequence[Named]) -> str:
    """Returns everything as one JSON object, with the topics given."""
    rows = [{"name": topic.name, **topic.figures} for topic in topics]
    members = {**found._asdict(), "topics": rows}
    return json.dumps({**members.pop("broker"), **members}, ensure_ascii=False)
