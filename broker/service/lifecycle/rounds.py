"""TopicRounds: one kind of work for each open persistent topic, one round at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import held
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError

log = logging.getLogger("magnetar")

Work = Callable[[PersistentTopic], Awaitable[object] | None]
"""Does one kind of work for a topic: at once, or in the awaitable that it returns."""


class Defects:
    """Errors of one round that no code expected; the first one is kept for the log."""

    def __init__(self) -> None:
        """Has none."""
        self._first: tuple[str, Exception] | None = None
        self._count = 0

    def add(self, name: str, error: Exception) -> None:
        """Adds the error that ended the work for the topic or subscription of this name."""
        self._first = self._first or (name, error)
        self._count += 1

    def report(self, title: str) -> None:
        """Logs one line with the first traceback, if there is one: thousands of topics may meet the same defect."""
        if self._first is not None:
            name, error = self._first
            more = f", and of {self._count - 1} more" if self._count > 1 else ""
            text = "! %s of %s%s failed, tried again in the next round"
            log.error(text, title, name, more, exc_info=error)


class TopicRounds:
    """Calls the work for all topics in turn; a round that takes longer than its interval leaves the next out."""

    def __init__(
        self,
        registry: TopicRegistry,
        title: str,
        work: Work,
    ) -> None:
        """`work` may raise BrokerError; any other error is a defect, which is logged with its traceback."""
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
        failed: list[tuple[PersistentTopic, BrokerError]] = []
        defects = Defects()
        try:
            # A copy: topics open and close while the work waits.
            async for topic in in_slices(list(self._registry.topics.values()), self._registry.now_ns):
                if isinstance(topic, PersistentTopic) and not topic.closed:
                    try:
                        # No coroutine around each topic: it would cost more than a look at an idle one.
                        waiting = self._work(topic)
                        if waiting is not None:
                            with held(topic):
                                await waiting
                    except BrokerError as error:
                        if not topic.closed:
                            failed.append((topic, error))
                    except Exception as error:  # noqa: BLE001
                        # A defect that one topic meets must not keep the work from all later ones, in every round.
                        defects.add(str(topic.name), error)
        finally:
            self.running = False
            self._report(failed)
            defects.report(self.title)

    def _report(self, failed: list[tuple[PersistentTopic, BrokerError]]) -> None:
        """Logs one line for a round: a storage that fails would bring one for each of many thousands of topics."""
        if failed:
            topic, error = failed[0]
            more = f", and of {len(failed) - 1} more topics" if len(failed) > 1 else ""
            text = "! %s of %s%s failed, tried again in the next round: %s"
            log.warning(text, self.title, topic.name, more, error)
