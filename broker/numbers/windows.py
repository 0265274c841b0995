"""Rates and buckets per window: the difference of two readings, divided by the time between them.

Pulsar's boards expect rates, latency and size buckets of the last whole window (60 s unless
`statsUpdateFrequencyInSecs` says otherwise), not since start. `roll` closes a window; its numbers stay the same until
the next call. The module is pure: the caller passes readings and time. A caller may pause between the slices of a roll,
so the new window replaces the old one only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import add, sub
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.numbers.columns import Columns, Row
from broker.numbers.readings import (
    CONSUMERS,
    NO_LATENCIES,
    NO_SIZES,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    PartReading,
    TopicReading,
)
from broker.numbers.topic_families import WRITE_LATENCY_BOUNDS_MS

SLICE_TOPICS = 64
"""Topics between two pauses: about 1 ms."""


class Histogram(NamedTuple):
    """Values by bucket.

    `counts[i]` = values above `bounds[i - 1]`, up to and with `bounds[i]`; one count more for the rest.
    """

    bounds: Sequence[float]
    """Upper bounds, ascending."""
    counts: Sequence[int]
    """One count per bound, and one more."""
    total: float
    """The sum of all values."""


class Window(NamedTuple):
    """The growth of the numbers of one subscription, consumer or producer."""

    row: Row
    """Rates per second, then growths."""
    parts: Mapping[tuple[str, int], Window] = MappingProxyType({})
    """Those of a subscription's consumers by their key; empty unless consumers are read."""


class TopicWindow(NamedTuple):
    """The growth of the numbers of one topic."""

    row: Row = TOPICS.no_window
    """Rates per second, then growths."""
    mean_size: float = 0.0
    """Mean bytes of a published message; 0 without messages."""
    write_latency: tuple[int, ...] = NO_LATENCIES
    """Entries of the window by write latency."""
    entry_size: tuple[int, ...] = NO_SIZES
    """Entries of the window by size."""
    subscriptions: Mapping[tuple[str, int], Window] = MappingProxyType({})
    """By their key."""
    producers: Mapping[tuple[str, int], Window] = MappingProxyType({})
    """By their key; empty unless producers are read."""


NOTHING_YET = TopicWindow()
"""Stands for a topic that no whole window has seen."""


def printed_row(window: TopicWindow) -> Row:
    """Returns the numbers of a window in the order in which they follow those of the moment."""
    return (*window.row, window.mean_size, *window.write_latency, *window.entry_size)


NO_WINDOW: Final = printed_row(NOTHING_YET)
"""The sum of the windows of a namespace without busy topics."""
_MESSAGES_IN, _BYTES_IN = map(TOPICS.names.index, ("messages_in", "bytes_in"))
_ADDED = TOPICS.names.index("ledger.stats.entries_added")
_LATENCY_SUM = TOPICS.names.index("write_latency_sum_us")
_MESSAGES_OUT = SUBSCRIPTIONS.names.index("messages_out")


class TopicWindows:
    """The last whole window of every topic."""

    def __init__(self, started_ns: int) -> None:
        """The first window begins at `started_ns`."""
        self._rolled_ns = started_ns
        self._previous: dict[str, TopicReading] = {}
        self._windows: dict[str, TopicWindow] = {}
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, NO_LATENCIES, 0.0)
        """Entries of all topics in the last whole window by write latency."""
        self.seconds = 0.0
        """Length of the last whole window; 0 before the first."""
        self.sums: Mapping[str, Row] = {}
        """By namespace, the sums of the windows of its topics."""

    def of(self, topic: str) -> TopicWindow:
        """Returns the topic's last whole window, all zero if no whole window has seen it."""
        return self._windows.get(topic, NOTHING_YET)

    def names(self) -> Set[str]:
        """Returns the topics that have counted something in the last whole window."""
        return self._windows.keys()

    @property
    def readings(self) -> Mapping[str, TopicReading]:
        """By topic, the reading that the window under way begins with."""
        return self._previous

    def roll(self, topics: Iterable[TopicReading | None], now_ns: int) -> Iterator[None]:
        """Closes the window. Yields after every SLICE_TOPICS topics, so that the caller can give the loop a turn.

        A topic whose object is that of `readings` has counted nothing, and gets no window of its own; nor does one with
        None in the place of a reading. A first reading counts from 0. Does nothing when no time has passed since the last
        roll.
        """
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        # Into new dictionaries: topics that are gone are forgotten, and `of` shows the old window until the end.
        previous: dict[str, TopicReading] = {}
        windows: dict[str, TopicWindow] = {}
        sums: dict[str, Row] = {}
        counts = NO_LATENCIES
        total_us: float = 0
        for number, reading in enumerate(topics, 1):
            if number % SLICE_TOPICS == 0:
                yield
            if reading is None:
                continue
            before = self._previous.get(reading.topic)
            previous[reading.topic] = reading
            if before is reading:
                continue
            # Counters that fell belong to a topic that was unloaded or made again: they count from 0.
            if (
                before is None
                or before.row[_ADDED] > reading.row[_ADDED]
                or before.row[_MESSAGES_IN] > reading.row[_MESSAGES_IN]
            ):
                before = TopicReading(reading.namespace, reading.topic, TOPICS.nothing)
            window = _topic_window(before, reading, seconds)
            counts = tuple(map(add, counts, window.write_latency))
            total_us += reading.row[_LATENCY_SUM] - before.row[_LATENCY_SUM]
            windows[reading.topic] = window
            so_far = sums.get(reading.namespace, NO_WINDOW)
            sums[reading.namespace] = tuple(map(add, so_far, printed_row(window)))
        self._rolled_ns = now_ns
        self.seconds = seconds
        self._previous = previous
        self._windows = windows
        self.sums = sums
        self.write_latency_ms = Histogram(WRITE_LATENCY_BOUNDS_MS, counts, total_us / 1000)


def quantile(histogram: Histogram, q: float) -> float:
    """Returns the value below which a share `q` (0 to 1) of all values lies.

    Values are taken as spread evenly over their bucket. Returns NaN without values, as Prometheus clients do; the last
    bucket has no end, so a value in it is returned as its lower bound.
    """
    rank = q * sum(histogram.counts)
    if not any(histogram.counts):
        return float("nan")
    lower = seen = 0.0
    # Not strict: there is one count more than bounds, and it is the case after the loop.
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        if count and seen + count >= rank:
            return lower + (bound - lower) * (rank - seen) / count
        seen += count
        lower = bound
    return lower


def quantile_of(values: Sequence[float], q: float) -> float:
    """Returns the exact quantile of sorted values; NaN without values."""
    return values[min(int(q * len(values)), len(values) - 1)] if values else float("nan")


def _minus(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sub, now, before))


def _topic_window(before: TopicReading, now: TopicReading, seconds: float) -> TopicWindow:
    messages = now.row[_MESSAGES_IN] - before.row[_MESSAGES_IN]
    size = now.row[_BYTES_IN] - before.row[_BYTES_IN]
    return TopicWindow(
        TOPICS.growth(before.row, now.row, seconds),
        size / messages if messages else 0.0,
        _minus(now.write_latency, before.write_latency),
        _minus(now.entry_size, before.entry_size),
        _windows(SUBSCRIPTIONS, before.subscriptions, now.subscriptions, seconds),
        _windows(PRODUCERS, before.producers, now.producers, seconds),
    )


def _windows(
    columns: Columns, before: Sequence[PartReading], now: Sequence[PartReading], seconds: float
) -> dict[tuple[str, int], Window]:
    if not now:
        return {}
    earlier = {reading.key: reading for reading in before}
    windows = {}
    for reading in now:
        then = earlier.get(reading.key)
        # A subscription that was deleted and made again under its name counts from 0.
        if then is None or (
            columns is SUBSCRIPTIONS and then.row[_MESSAGES_OUT] > reading.row[_MESSAGES_OUT]
        ):
            then = PartReading(reading.key, columns.nothing)
        parts = _windows(CONSUMERS, then.parts, reading.parts, seconds)
        windows[reading.key] = Window(columns.growth(then.row, reading.row, seconds), parts)
    return windows
