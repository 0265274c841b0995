"""Turns two scrapes into what happened per second between them: of the broker, its cache, its bookie and each topic.

All functions are pure. `figures.py` has the table of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from foundation.units import NS_PER_SECOND
from foundation.value import Json
from magnetar.top.console import Look
from magnetar.top.figures import (
    BOOKIE,
    BROKER,
    CACHE,
    SUBSCRIPTION,
    TOPIC,
    Figure,
    Figures,
    Span,
    figures_of,
)
from magnetar.top.scrape import LATENCY, Scrape


class Scrapes(NamedTuple):
    """One scrape of a broker, and of a bookie with a port of its own."""

    at_ns: int
    """Monotonic time of the request."""
    broker: Scrape
    """The broker's series."""
    bookie: Scrape
    """The bookie's series; the broker's again where it has them itself."""
    bookies: Sequence[Json] = ()
    """The bookies that a broker of Magnetar writes to; empty where `bookie` has series of one."""
    look: Look | None = None
    """The answer for the view that is open; None for the topics."""
    publish_ms: Mapping[str, float] | None = None
    """Publish latencies of the last minute by quantile, as the console shows them; None of a broker without one."""


class Named(NamedTuple):
    """One topic, namespace or subscription."""

    name: str
    """Full name of a topic, `tenant/namespace`, or the name of a subscription."""
    figures: Figures
    """Its figures."""


class Overview(NamedTuple):
    """Everything on the screen."""

    version: str
    """The broker's version; empty where it does not tell it."""
    seconds: float
    """Time between the two readings; 0 for a first reading, whose rates are 0."""
    broker: Figures
    """The broker as a whole, with the sums over its topics."""
    publish_ms: Mapping[str, float]
    """Latency of publishes in ms by quantile (`0.5`), of the last minute; empty where the broker does not tell it."""
    cache: Figures
    """The entry cache."""
    bookie: Figures | None
    """The bookie, by its metrics; None without these."""
    bookies: Sequence[Json]
    """The bookies as the broker knows them; empty where `bookie` is known, and of Apache's brokers."""
    topics: Sequence[Named]
    """Every topic, in no order."""


SUMMED: Final = ("in_messages", "in_bytes", "out_messages", "out_bytes", "backlog")
"""The figures of topics that are shown of the broker too."""


def overview(before: Scrapes | None, now: Scrapes) -> Overview:
    """Returns what happened between two readings; of a first one, only what does not need two."""
    seconds = (now.at_ns - before.at_ns) / NS_PER_SECOND if before is not None else 0.0
    span = Span(_sums(before.broker if before else {}), _sums(now.broker), seconds)
    topics = _rows(TOPIC, before.broker if before else {}, now.broker, seconds, _topic_of)
    latency = {
        name.removeprefix(f"{LATENCY}:"): value for name, value in span.now.items() if f"{LATENCY}:" in name
    }
    return Overview(
        version=next(
            (labels.get("version", "") for labels, _ in now.broker.get("pulsar_version_info", [])), ""
        ),
        seconds=seconds,
        broker={
            **{name: sum(topic.figures[name] or 0.0 for topic in topics) for name in SUMMED},
            **figures_of(BROKER, span),
        },
        # Of another broker those of the last whole minute, which may have ended a minute ago.
        publish_ms=latency if now.publish_ms is None else now.publish_ms,
        cache=figures_of(CACHE, span),
        bookie=figures_of(BOOKIE, Span(_sums(before.bookie if before else {}), _sums(now.bookie), seconds))
        if has_bookie(now.bookie)
        else None,
        bookies=now.bookies,
        topics=topics,
    )


def has_bookie(scrape: Scrape) -> bool:
    """Returns True for a scrape with the series of a bookie."""
    return "bookkeeper_server_ADD_ENTRY_count" in scrape


def is_magnetar(scrape: Scrape) -> bool:
    """Returns True for the scrape of a broker with a console."""
    return "pulsar_ml_cache_x_max_bytes" in scrape


def subscriptions(scrape: Scrape, topic: str) -> list[Named]:
    """Returns the subscriptions of a topic, by name; `scrape` was parsed with this topic."""

    def subscription_of(labels: Mapping[str, str]) -> str | None:
        return labels.get("subscription") if _topic_of(labels) == topic else None

    return sorted(_rows(SUBSCRIPTION, {}, scrape, 0.0, subscription_of), key=lambda row: row.name)


def _sums(scrape: Scrape) -> dict[str, float]:
    """Returns the sum of each family, and each quantile of a summary as `family:quantile`, the highest of its series."""
    sums: dict[str, float] = {}
    for name, samples in scrape.items():
        for labels, value in samples:
            if labels.get("success") == "false":
                continue
            if "quantile" in labels:
                place = f"{name}:{labels['quantile']}"
                sums[place] = max(value, sums.get(place, value))
            else:
                sums[name] = sums.get(name, 0) + value
    return sums


def _rows(
    table: tuple[Figure, ...],
    before: Scrape,
    now: Scrape,
    seconds: float,
    name_of: Callable[[Mapping[str, str]], str | None],
) -> list[Named]:
    """Returns a row for each name that the labels of a series have."""
    names = [name for figure in table for name in figure.families.split()]
    earlier, later = (
        {name: _by_name(scrape.get(name, []), name_of) for name in names} for scrape in (before, now)
    )
    return [
        Named(row, figures_of(table, Span(_of(earlier, row), _of(later, row), seconds)))
        for row in dict.fromkeys(row for found in later.values() for row in found)
    ]


def _of(found: Mapping[str, Mapping[str, float]], row: str) -> dict[str, float]:
    return {name: values[row] for name, values in found.items() if row in values}


def _topic_of(labels: Mapping[str, str]) -> str | None:
    """Returns the full name of a topic, or a namespace; None for the sum of a cluster."""
    name = labels.get("topic") or labels.get("namespace")
    if name is not None and "partition" in labels and labels["partition"] != "-1":
        name += f"-partition-{labels['partition']}"
    return name


def _by_name(
    samples: Iterable[tuple[Mapping[str, str], float]], name_of: Callable[[Mapping[str, str]], str | None]
) -> dict[str, float]:
    """Returns the value by name. Where a topic has a series of its own, those of its subscriptions repeat it."""
    whole: dict[str, float] = {}
    parts: dict[str, float] = {}
    for labels, value in samples:
        name = name_of(labels)
        if name is not None:
            found = parts if "subscription" in labels else whole
            found[name] = found.get(name, 0.0) + value
    return {**parts, **whole}
