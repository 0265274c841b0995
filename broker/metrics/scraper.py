"""Scraper: answers scrapes and closes windows; the only module of this room that uses the event loop.

A scrape is written in slices, with a turn of the loop between two of them, so that messages flow meanwhile. Scrapes that
come while one is being written share its text, so that many or slow scrapers cost no more than one; scrapes of chosen
topics share it with those that choose the same. The text of topics
comes from `exposition.py`, the rest from prometheus-client's registry (`collectors.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.metrics.broker_reading import BrokerReading
from broker.metrics.broker_window import BrokerWindow
from broker.metrics.exposition import ExpositionSettings, TopicExposition
from broker.metrics.network import NetworkSettings, NetworkWindow
from broker.metrics.process import CpuWindow, GarbageTimes
from broker.numbers.ended_sums import EndedSums, Walk
from broker.numbers.namespace_sums import NamespaceSums
from broker.numbers.readings import Chosen, TopicReading
from broker.numbers.windows import TopicWindow, TopicWindows
from foundation.loop.late_imports import import_late
from foundation.loop.slices import in_slices

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

ALL: Final = Chosen()
"""Chosen by a scrape of the whole broker."""
EOF: Final = b"# EOF\n"
"""End of an OpenMetrics text; anything after it is an error."""


class Scrape(NamedTuple):
    """The answer to one request for `/metrics`."""

    content_type: str
    """The format in use, for the header `Content-Type`."""
    size: int
    """Bytes of all chunks together."""
    chunks: Iterator[bytes]
    """The text in pieces."""


class _One(NamedTuple):
    """One family in the place of a registry, so that the text of all is not made in one piece of 10 ms."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        """Yields the family."""
        yield self.family


class BrokerSource(Protocol):
    """The readings of a broker; `MetricsSource` takes them from its rooms."""

    @property
    def sums(self) -> NamespaceSums | None:
        """Sums that are kept between scrapes; None where each scrape reads every topic anyway."""
        ...

    def chosen(self, chosen: Chosen) -> Iterable[TopicReading]:
        """Yields a reading of each chosen topic; iterates over a copy as `topics`."""
        ...

    @property
    def ended(self) -> EndedSums:
        """Counters of the topics that were closed."""
        ...

    def topics(self, walk: Walk) -> Iterable[TopicReading]:
        """Yields a reading of each topic; `walk` has the counters of those that are closed meanwhile.

        The scraper consumes it over several turns of the loop, so it must iterate over a copy of the topics.
        """
        ...

    def since(self, before: Mapping[str, TopicReading]) -> Iterable[TopicReading | None]:
        """Yields a reading of each topic, the object in `before` again or None for one that has counted nothing since."""
        ...

    def broker(self) -> BrokerReading:
        """Returns the objects that count for the whole broker."""
        ...

    def count_reads(self) -> Iterator[None]:
        """Sums the reads of all topics, in slices of some ms; `broker` shows the sum until the next walk."""
        ...

    def count_levels(self) -> Iterator[None]:
        """Counts levels that take a walk, in slices of some ms; `broker` shows them until the next walk."""
        ...


class Scraper:
    """Scrapes and windows of one broker."""

    def __init__(
        self,
        settings: ExpositionSettings,
        version: str,
        source: BrokerSource,
        now_ns: Callable[[], int],
        network: NetworkSettings,
    ) -> None:
        """`source` is read for every scrape and window; the first windows begin now."""
        self._settings = settings
        self._version = version
        self._source = source
        self._now_ns = now_ns
        self._topic_windows = TopicWindows(now_ns())
        self._broker_window = BrokerWindow(now_ns())
        self._cpu = CpuWindow(now_ns())
        self._network = NetworkWindow(network, now_ns())
        self._garbage = GarbageTimes()
        self._registry: CollectorRegistry | None = None
        self._writing: dict[Chosen, asyncio.Task[TopicExposition]] = {}
        # Scrapes that share the text that is being written.
        self._readers: Counter[Chosen] = Counter()

    async def run_windows(self, topics_s: float, broker_s: float) -> None:
        """Closes windows until cancelled: every `topics_s` for topics, every `broker_s` for cache and process."""
        self._garbage.start()
        try:
            await asyncio.gather(
                self._every(topics_s, self.roll_topics), self._every(broker_s, self.roll_broker)
            )
        finally:
            self._garbage.stop()

    async def _every(self, seconds: float, roll: Callable[[], Awaitable[None]]) -> None:
        while True:
            # The time that has really passed is measured at the roll, so waking late changes no rate.
            await asyncio.sleep(seconds)
            await roll()

    async def roll_topics(self) -> None:
        """Closes the window of the topics now."""
        windows = self._topic_windows
        sums = self._source.sums
        if sums is not None:
            await _in_slices(sums.update())
            sums.begin_window()
        await _in_slices(windows.roll(self._source.since(windows.readings), self._now_ns()))
        if sums is not None:
            sums.window_closed()

    async def roll_broker(self) -> None:
        """Closes the window of the cache and the process now."""
        await _in_slices(self._source.count_reads())
        now_ns = self._now_ns()
        self._broker_window.roll(self._source.broker(), now_ns)
        self._cpu.roll(now_ns)
        self._network.roll(now_ns)

    def window_of(self, topic: str) -> TopicWindow:
        """Returns the topic's last whole window; the admin API shows its rates in `…/stats`."""
        return self._topic_windows.of(topic)

    async def scrape(self, accept: str, chosen: Chosen = ALL) -> Scrape:
        """Writes a scrape, or shares one that is being written.

        `accept` is the request's header `Accept`: OpenMetrics when it asks for that, else text format 0.0.4.
        A scrape of chosen topics has their series alone.
        """
        if self._registry is None:
            await import_late("broker.metrics.collectors")
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        writing = self._writing.get(chosen)
        if writing is None:
            writing = self._writing[chosen] = asyncio.create_task(self._write(chosen))
            # By a callback, so that a text which failed is forgotten too: otherwise every later scrape would share
            # its error.
            writing.add_done_callback(partial(self._written, chosen))
        self._readers[chosen] += 1
        # Shielded: a scraper that gives up must not cancel the text that others wait for.
        exposition = await asyncio.shield(writing)
        broker: list[bytes] = []
        if chosen == ALL:
            families = in_slices(self._broker_registry().collect(), self._now_ns)
            broker = [encode(_One(family)).removesuffix(EOF) async for family in families]
        end = EOF if openmetrics else b""
        size = sum(map(len, broker)) + exposition.size(openmetrics) + len(end)
        return Scrape(content_type, size, chain(broker, exposition.chunks(openmetrics), [end]))

    def _written(self, chosen: Chosen, writing: asyncio.Task[TopicExposition]) -> None:
        del self._writing[chosen]
        # Before the first of them reads: the last one frees the text.
        readers = self._readers.pop(chosen)
        if not writing.cancelled() and writing.exception() is None:
            writing.result().readers = readers

    async def _write(self, chosen: Chosen) -> TopicExposition:
        settings, windows, sums = self._settings, self._topic_windows, self._source.sums
        if chosen != ALL:
            exposition = TopicExposition(replace(settings, topic_level=True, sums=False), windows)
            await _in_slices(exposition.slices(self._source.chosen(chosen)))
            return exposition
        await _in_slices(self._source.count_levels())
        exposition = TopicExposition(settings, windows)
        if sums is None:
            with self._source.ended.walk() as walk:
                await _in_slices(exposition.slices(self._source.topics(walk), ended=walk.rows))
        else:
            await _in_slices(sums.update())
            busy = sums.busy(windows) if settings.topic_level else ()
            await _in_slices(exposition.slices(busy, sums, self._source.ended.rows))
        return exposition

    def _broker_registry(self) -> CollectorRegistry:
        if self._registry is None:
            from broker.metrics.collectors import (
                BrokerCollector,
                MachineWindows,
                ProcessBoardCollector,
                registry_of,
            )

            cluster = self._settings.cluster
            windows = MachineWindows(self._cpu, self._network, self._garbage)
            self._registry = registry_of(
                cluster,
                BrokerCollector(cluster, self._source.broker, self._broker_window, self._topic_windows),
                ProcessBoardCollector(cluster, self._version, self._source.broker, windows),
            )
        return self._registry


async def _in_slices(slices: Iterator[None]) -> None:
    for _ in slices:
        await asyncio.sleep(0)
