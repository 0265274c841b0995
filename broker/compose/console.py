"""Connects the console to a broker: the objects that it samples, and the log's warnings."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sized
from functools import cached_property, partial
from typing import TYPE_CHECKING

from broker.console.hub import Hub
from broker.console.log_warnings import LogWarnings
from broker.console.sampler import Sampler, journal_latency
from broker.console.topic_history import TopicHistories
from broker.console.traffic import Traffic
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.topic import Topic
from entry_cache.compose import ComposedCache
from foundation.loop.loop_watch import LoopWatch

if TYPE_CHECKING:
    # Needs aiohttp, which is imported when a client connects to the admin port.
    from broker.console.routes import ConsoleRoutes


class Console:
    """The console of one broker."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        topics: Mapping[str, Topic],
        dormant: DormantTopics,
        cache: ComposedCache,
        connections: Sized,
        loop_watch: LoopWatch,
    ) -> None:
        """Samples nothing before `run`. `topics` are the open ones, `dormant` the others, `connections` those of clients."""
        self._environment = environment
        self._topics = topics
        self._cache = cache
        self._warnings = LogWarnings()
        self._traffic = Traffic(topics, dormant, environment.changed)
        # The machine's clock, not the one that a test may advance: rates are those of real seconds.
        sampler = Sampler(
            cache.manager,
            connections,
            loop_watch,
            self._traffic,
            partial(journal_latency, environment.ledgers.bookies),
            time.monotonic_ns,
            environment.wall_ms,
        )
        self._histories = TopicHistories(topics, time.monotonic_ns, environment.wall_ms)
        self._hub = Hub(sampler.read, self._warnings, self._every_ten_seconds)

    @cached_property
    def pages(self) -> ConsoleRoutes:
        """The page and its data; made when the admin server is."""
        from broker.console.bookies import BookiesPage
        from broker.console.cache_page import CachePage
        from broker.console.routes import ConsoleRoutes

        environment = self._environment
        cache = CachePage(self._cache, self._topics, environment.now_ns)
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
