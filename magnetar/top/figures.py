"""The tables of figures: each one's name in JSON, the families that it is made of, its text and its title.

A figure is made of a `Span`: of a whole server, of one topic or of one subscription. Counters are preferred to Pulsar's
rates, which are means of the last whole minute. Those stand in where a broker has no counter: for the cache of Apache's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from magnetar.top.numbers import count, digits, milliseconds, percent, size

Figures: TypeAlias = Mapping[str, float | None]
"""The figures of one server, topic or subscription by their names in JSON; None for one that is not known."""


class Span(NamedTuple):
    """The sums of two scrapes by family, and the time between them."""

    before: Mapping[str, float]
    """The earlier sums. A family that is absent counts from 0."""
    now: Mapping[str, float]
    """The later sums."""
    seconds: float
    """0 for a first scrape, which has no rates."""

    def per_second(self, *names: str) -> float:
        """Returns the growth of the first of these families that the broker has; `…_rate` is one already."""
        name = next((one for one in names if one in self.now), names[-1])
        before, now = self.before.get(name, 0.0), self.now.get(name, 0.0)
        if name.endswith("_rate"):
            return now
        # A counter that fell began again at 0, with a new process.
        return (now - before if now >= before else now) / self.seconds if self.seconds else 0.0


def _rate(span: Span, names: list[str]) -> float:
    return span.per_second(*names)


def _cores(span: Span, names: list[str]) -> float | None:
    return span.per_second(*names) if span.seconds else None


def _known(span: Span, names: list[str]) -> float | None:
    return span.now.get(names[0])


def _sum(span: Span, names: list[str]) -> float:
    return span.now.get(names[0], 0.0)


def _whole(span: Span, names: list[str]) -> int:
    return int(_sum(span, names))


def _status(span: Span, names: list[str]) -> bool:
    return span.now.get(names[0], 1.0) > 0


def _ratio(span: Span, names: list[str]) -> float | None:
    # Hits and misses by turns, those of the preferred counters first.
    return _share(span.per_second(*names[::2]), span.per_second(*names[1::2]))


def _total_ratio(span: Span, names: list[str]) -> float | None:
    return _share(_sum(span, names), _sum(span, names[1:]))


def _share(hits: float, misses: float) -> float | None:
    return hits / (hits + misses) if hits + misses else None


def _after(words: str, text: Callable[[float | None], str]) -> Callable[[float | None], str]:
    """Returns a function of a text that is left out with its words where the figure is not known."""
    return lambda value: "" if value is None else words + text(value)


class Figure(NamedTuple):
    """One figure."""

    name: str
    """Its name in JSON."""
    made: Callable[[Span, list[str]], float | None]
    """Makes it of the families."""
    families: str
    """Their names, separated by spaces; a colon and a quantile follow that of a summary."""
    text: Callable[[float | None], str]
    """Returns its text."""
    title: str = ""
    """The title of its column; "" without one."""
    minor: bool = False
    """True for a column for which a narrow screen has no room."""


_HITS: Final = "pulsar_ml_cache_x_hits_total"
_MISSES: Final = "pulsar_ml_cache_x_misses_total"
_EVICTED: Final = "pulsar_ml_cache_x_evicted_total pulsar_ml_cache_evicted_entries_total"
_READS: Final = f"{_HITS} {_MISSES} pulsar_ml_cache_hits_rate pulsar_ml_cache_misses_rate"
_TOPIC_READS: Final = "pulsar_ml_cache_x_topic_hits_total pulsar_ml_cache_x_topic_misses_total"
_OWN_READS: Final = "pulsar_ml_cache_x_subscription_hits_total pulsar_ml_cache_x_subscription_misses_total"
_BLOCKED: Final = "pulsar_subscription_blocked_on_unacked_messages"
TOPIC: Final = (
    Figure("in_messages", _rate, "pulsar_in_messages_total", count, "in/s"),
    Figure("in_bytes", _rate, "pulsar_in_bytes_total", size, "in B/s", minor=True),
    Figure("out_messages", _rate, "pulsar_out_messages_total", count, "out/s"),
    Figure("out_bytes", _rate, "pulsar_out_bytes_total", size, "out B/s", minor=True),
    Figure("backlog", _sum, "pulsar_msg_backlog", count, "backlog"),
    Figure("storage_bytes", _sum, "pulsar_storage_size", size, "storage"),
    Figure("hit_ratio", _ratio, _TOPIC_READS, percent, "hits"),
    Figure("producers", _whole, "pulsar_producers_count", digits, "prod", minor=True),
    Figure("consumers", _whole, "pulsar_consumers_count", digits, "cons"),
    Figure("subscriptions", _whole, "pulsar_subscriptions_count", digits, "subs", minor=True),
)
"""A topic, or a namespace where a broker exposes no topics."""
SUBSCRIPTION: Final = (
    Figure("backlog", _sum, "pulsar_subscription_back_log", count, "backlog"),
    Figure("unacked", _sum, "pulsar_subscription_unacked_messages", count, "unacked"),
    Figure("delayed", _sum, "pulsar_subscription_delayed", count, "delayed"),
    Figure("out_messages", _sum, "pulsar_subscription_msg_rate_out", count, "out/s"),
    Figure("out_bytes", _sum, "pulsar_subscription_msg_throughput_out", size, "out B/s"),
    Figure("redelivered", _sum, "pulsar_subscription_msg_rate_redeliver", count, "again/s"),
    Figure("hit_ratio", _total_ratio, _OWN_READS, percent, "hits"),
    Figure("consumers", _whole, "pulsar_subscription_consumers_count", digits, "cons"),
    Figure("blocked", _sum, _BLOCKED, lambda value: "BLOCKED" if value else "", "state"),
)
"""A subscription of the topic that the screen shows; its rates are those of the broker's last window of a minute."""
BROKER: Final = (
    Figure("topics_count", _sum, "pulsar_topics_count", count),
    Figure("connections", _sum, "pulsar_active_connections", count),
    Figure("cpu", _cores, "process_cpu_seconds_total", _after("  cpu ", lambda value: f"{value:.2f}")),
    Figure("memory_bytes", _known, "process_resident_memory_bytes", _after("  memory ", size)),
)
"""A broker as a whole; its traffic and backlog are sums over the topics."""
CACHE: Final = (
    Figure("hit_ratio", _ratio, _READS, percent),
    Figure("hits", _rate, f"{_HITS} pulsar_ml_cache_hits_rate", count),
    Figure("misses", _rate, f"{_MISSES} pulsar_ml_cache_misses_rate", count),
    Figure("evictions", _rate, _EVICTED, count),
    Figure("used_bytes", _sum, "pulsar_ml_cache_used_size", size),
    Figure("max_bytes", _known, "pulsar_ml_cache_x_max_bytes", _after(" of ", size)),
)
"""The entry cache; Apache's brokers do not tell its limit."""
BOOKIE: Final = (
    Figure("adds", _rate, "bookkeeper_server_ADD_ENTRY_count", count),
    Figure("reads", _rate, "bookkeeper_server_READ_ENTRY_count", count),
    Figure("write_bytes", _rate, "bookie_WRITE_BYTES", size),
    Figure("read_bytes", _rate, "bookie_READ_BYTES", size),
    Figure("sync_ms", _known, "bookie_journal_JOURNAL_SYNC:0.99", milliseconds),
    Figure("read_cache_hit_ratio", _ratio, "bookie_read_cache_hits bookie_read_cache_misses", percent),
    Figure("write_cache_bytes", _sum, "bookie_write_cache_size", size),
    Figure("ledgers", _sum, "bookie_ledgers_count", count),
    Figure("writable", _status, "bookie_SERVER_STATUS", lambda value: "" if value else "READ-ONLY  "),
)
"""A bookie; Apache's standalone has its families among the broker's."""


def figures_of(table: tuple[Figure, ...], span: Span) -> Figures:
    """Returns the figures of a table for a span."""
    return {figure.name: figure.made(span, figure.families.split()) for figure in table}


def texts_of(table: tuple[Figure, ...], figures: Figures) -> dict[str, str]:
    """Returns the texts of a table's figures by their names."""
    return {figure.name: figure.text(figures[figure.name]) for figure in table}


def families_of(*tables: tuple[Figure, ...]) -> frozenset[str]:
    """Returns the names of the families that the tables are made of."""
    names = " ".join(figure.families for table in tables for figure in table).split()
    return frozenset(name.partition(":")[0] for name in names)
