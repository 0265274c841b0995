"""TopicRounds: one kind of work for each open persistent topic, one round at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.model.errors import BrokerError
from broker.service.persistent_topic import PersistentTopic
from broker.service.topic_registry import TopicRegistry

log = logging.getLogger("magnetar")

TOPICS_PER_SLICE: Final = 50
"""Topics before other work of the loop gets its share, for work that does not wait."""


class TopicRounds:
    """Calls the work for all topics in turn; a round that takes longer than its interval leaves the next out."""

    def __init__(
        self, registry: TopicRegistry, title: str, work: Callable[[PersistentTopic], Awaitable[None]]
    ) -> None:
        """`work` may raise BrokerError."""
        self._registry = registry
        self.title = title
        """Name of the work, for log lines."""
        self._work = work
        self.running = False
        """True during a round."""

    async def run(self) -> None:
        """Makes one round; returns at once while another one is under way. A failure costs its topic this round."""
        if self.running:
            return
        self.running = True
        try:
            # A copy: topics open and close while the work waits.
            for number, topic in enumerate(list(self._registry.topics.values()), 1):
                if isinstance(topic, PersistentTopic) and not topic.closed:
                    await self._try(topic)
                if number % TOPICS_PER_SLICE == 0:
                    await asyncio.sleep(0)
        finally:
            self.running = False

    async def _try(self, topic: PersistentTopic) -> None:
        try:
            await self._work(topic)
        except BrokerError as error:
            if not topic.closed:
                log.warning(
                    "! %s of %s failed, tried again in the next round: %s", self.title, topic.name, error
                )
