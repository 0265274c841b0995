"""QuotaRounds: compares the backlogs of all open topics with their quotas, and measures how long that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.service.lifecycle.rounds import TopicRounds
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry


class QuotaRounds:
    """Makes one comparison after another; its durations are those of `TopicRegistry.quota_checks`."""

    def __init__(self, registry: TopicRegistry, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a monotonic clock."""
        self.title = "backlog quotas"
        """Name of the work, for log lines."""
        self._registry = registry
        self._now_ns = now_ns
        self._rounds = TopicRounds(registry, self.title, _compare)

    async def run(self) -> None:
        """Makes one round; returns at once while another one is under way, and with `backlogQuotaCheckEnabled=false`."""
        if self._rounds.running or not self._registry.settings.quotas_checked:
            return
        began_ns = self._now_ns()
        await self._rounds.run()
        self._registry.quota_checks.add(self._now_ns() - began_ns)


def _compare(topic: PersistentTopic) -> Awaitable[None] | None:
    return None if topic.quotas.rests else topic.quotas.look()
