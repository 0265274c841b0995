"""Connects the console to a broker: the objects that it samples, and the log's warnings."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Protocol

from broker.console.bookies import BookiesPage, journal_latency
from broker.console.cache_page import CachePage
from broker.console.hub import Hub
from broker.console.log_warnings import LogWarnings
from broker.console.routes import ConsoleRoutes
from broker.console.sampler import SampledBroker, Sampler
from broker.console.topic_history import TopicHistories
from broker.console.traffic import Traffic
from broker.managed_ledger.environment import ManagedLedgerEnvironment


class ConsoleBroker(SampledBroker, Protocol):
    """The parts of the composed broker that the console reads."""

    environment: ManagedLedgerEnvironment
    """Clocks, ledgers and metadata."""


class Console:
    """The console of one broker."""

    def __init__(self, broker: ConsoleBroker) -> None:
        """Samples nothing before `run`."""
        self._warnings = LogWarnings()
        traffic = Traffic(broker.registry.topics)
        environment = broker.environment
        # The machine's clock, not the one that a test may advance: rates are those of real seconds.
        sampler = Sampler(
            broker,
            traffic,
            partial(journal_latency, environment.ledgers.bookies),
            time.monotonic_ns,
            environment.wall_ms,
        )
        histories = TopicHistories(broker.registry.topics, time.monotonic_ns, environment.wall_ms)
        cache = CachePage(broker.cache, broker.registry.topics, environment.now_ns)
        # By the machine's clock: one that a test advances would make a request take an hour.
        bookies = BookiesPage(environment.ledgers.bookies, time.monotonic_ns)

        def every_ten_seconds() -> None:
            cache.expire()
            bookies.expire()
            histories.sample()

        self._hub = Hub(sampler, self._warnings, every_ten_seconds)
        self.routes = ConsoleRoutes(self._hub, traffic, histories, cache, bookies)
        """The page and its data."""

    async def run(self) -> None:
        """Samples the broker and hears its log until cancelled."""
        root = logging.getLogger()
        root.addHandler(self._warnings)
        try:
            await self._hub.run()
        finally:
            root.removeHandler(self._warnings)
