"""Connects the console to a broker: the objects that it samples, and the log's warnings."""

from __future__ import annotations

import logging
import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from broker.console.hub import Hub
from broker.console.log_warnings import LogWarnings
from broker.console.sampler import SampledBroker, Sampler, journal_latency
from broker.console.topic_history import TopicHistories
from broker.console.traffic import Traffic
from broker.managed_ledger.environment import ManagedLedgerEnvironment

if TYPE_CHECKING:
    # Needs aiohttp, which is imported when a client connects to the admin port.
    from broker.console.routes import ConsoleRoutes


class ConsoleBroker(SampledBroker, Protocol):
    """The parts of the composed broker that the console reads."""

    environment: ManagedLedgerEnvironment
    """Clocks, ledgers and metadata."""


class Console:
    """The console of one broker."""

    def __init__(self, broker: ConsoleBroker) -> None:
        """Samples nothing before `run`."""
        self._broker = broker
        self._warnings = LogWarnings()
        self._traffic = Traffic(broker.registry.topics)
        environment = broker.environment
        # The machine's clock, not the one that a test may advance: rates are those of real seconds.
        sampler = Sampler(
            broker,
            self._traffic,
            partial(journal_latency, environment.ledgers.bookies),
            time.monotonic_ns,
            environment.wall_ms,
        )
        self._histories = TopicHistories(broker.registry.topics, time.monotonic_ns, environment.wall_ms)
        self._hub = Hub(sampler.read, self._warnings, self._every_ten_seconds)

    @cached_property
    def pages(self) -> ConsoleRoutes:
        """The page and its data; made when the admin server is."""
        from broker.console.bookies import BookiesPage
        from broker.console.cache_page import CachePage
        from broker.console.routes import ConsoleRoutes

        broker, environment = self._broker, self._broker.environment
        cache = CachePage(broker.cache, broker.registry.topics, environment.now_ns)
        # By the machine's clock: one that a test advances would make a request take an hour.
        bookies = BookiesPage(environment.ledgers.bookies, time.monotonic_ns)
        return ConsoleRoutes(self._hub, self._traffic, self._histories, cache, bookies)

    def _every_ten_seconds(self) -> None:
        self._histories.sample()
        if "pages" in vars(self):
            self.pages.expire()

    async def run(self) -> None:
        """Samples the broker and hears its log until cancelled."""
        root = logging.getLogger()
        root.addHandler(self._warnings)
        try:
            await self._hub.run()
        finally:
            root.removeHandler(self._warnings)
