"""Answers scrapes and closes windows: the one place of this room with a loop in it.

A scrape is written in slices, with a turn of the loop between two of them. Scrapes that come while one is
being written share its text, so that many or slow scrapers cost no more than one. prometheus_client is
imported with the first scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.metrics.exposition import ExpositionSettings, TopicExposition
from broker.metrics.process import CpuWindow, GarbageTimes
from broker.metrics.snapshot import BrokerStats, TopicStats
from broker.metrics.window import BrokerWindow, TopicWindow, TopicWindows

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

EOF: Final = b"# EOF\n"


class Scrape(NamedTuple):
    content_type: str
    size: int
    """Bytes of all chunks together."""
    chunks: Iterator[bytes]


class Scraper:
    """`topics` and `broker` are asked anew for every scrape and window.

    `topics` is consumed over several turns of the loop, so it must iterate over a copy of what may change.
    """

    def __init__(
        self,
        settings: ExpositionSettings,
        version: str,
        topics: Callable[[], Iterable[TopicStats]],
        broker: Callable[[], BrokerStats],
        now_ns: Callable[[], int],
        prepare: Callable[[], Iterator[None]] = lambda: iter(()),
    ) -> None:
        """`prepare` comes before each scrape, in slices as long as its own: levels that take a walk to count."""
        self._settings = settings
        self._version = version
        self._topics = topics
        self._broker = broker
        self._now_ns = now_ns
        self._prepare = prepare
        self._topic_windows = TopicWindows(now_ns())
        self._broker_window = BrokerWindow(now_ns())
        self._cpu = CpuWindow(now_ns())
        self._garbage = GarbageTimes()
        self._registry: CollectorRegistry | None = None
        self._writing: asyncio.Task[TopicExposition] | None = None

    async def run_windows(self, topics_s: float, broker_s: float) -> None:
        """Close windows until cancelled.

        Every `statsUpdateFrequencyInSecs` for what hangs on topics, every `managedLedgerStatsPeriodSeconds`
        for the cache and the process.
        """
        self._garbage.start()
        try:
            await asyncio.gather(
                self._every(topics_s, self.roll_topics), self._every(broker_s, self.roll_broker)
            )
        finally:
            self._garbage.stop()

    async def _every(self, seconds: float, roll: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await roll()

    async def roll_topics(self) -> None:
        """Close the topics' window now."""
        await _in_slices(self._topic_windows.roll(self._topics(), self._now_ns()))

    async def roll_broker(self) -> None:
        """Close the window of the cache and the process now."""
        now_ns = self._now_ns()
        self._broker_window.roll(self._broker(), now_ns)
        self._cpu.roll(now_ns)

    def window_of(self, topic: str) -> TopicWindow:
        """The topic's last whole window, for whoever else shows rates."""
        return self._topic_windows.of(topic)

    async def scrape(self, accept: str) -> Scrape:
        """`accept` = the request's Accept header: OpenMetrics for those who ask for it, else text 0.0.4."""
        if self._registry is None:
            # The import takes 50 ms and more: in a thread of its own, the loop goes on meanwhile.
            await asyncio.to_thread(import_module, "broker.metrics.collectors")
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
            self._writing.add_done_callback(self._written)
        exposition = await asyncio.shield(self._writing)
        broker = encode(self._broker_registry()).removesuffix(EOF)
        end = EOF if openmetrics else b""
        size = len(broker) + exposition.size(openmetrics) + len(end)
        return Scrape(content_type, size, chain([broker], exposition.chunks(openmetrics), [end]))

    async def _write(self) -> TopicExposition:
        await _in_slices(self._prepare())
        exposition = TopicExposition(self._settings, self._topic_windows)
        await _in_slices(exposition.slices(self._topics()))
        return exposition

    def _written(self, _: asyncio.Task[TopicExposition]) -> None:
        self._writing = None

    def _broker_registry(self) -> CollectorRegistry:
        if self._registry is None:
            from broker.metrics.collectors import BrokerCollector, ProcessBoardCollector, registry_of

            cluster = self._settings.cluster
            self._registry = registry_of(
                BrokerCollector(cluster, self._broker, self._broker_window, self._topic_windows),
                ProcessBoardCollector(cluster, self._version, self._broker, self._cpu, self._garbage),
            )
        return self._registry


async def _in_slices(slices: Iterator[None]) -> None:
    for _ in slices:
        await asyncio.sleep(0)
