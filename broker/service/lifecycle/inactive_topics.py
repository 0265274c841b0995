"""InactiveTopicRounds: deletes topics that were unused for a while (`brokerDeleteInactiveTopicsEnabled`), or closes them.

`brokerCloseInactiveTopicsEnabled` closes them instead (PIP-470): all that is stored stays, and their next client opens them.

A topic is in use while it has a producer. Else its policy's mode decides: `delete_when_no_subscriptions` keeps a topic with
any subscription, `delete_when_subscriptions_caught_up` keeps one with a consumer or a backlog. Only open topics are looked
at, as in Pulsar: a topic that nobody has asked for since the start stays. A dormant one is opened when it may be due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import INACTIVE, RETAINED
from broker.service.policies.values import WITHOUT_SUBSCRIPTIONS
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")


def in_use(topic: Topic, mode: str) -> bool:
    """Returns True while the topic must stay."""
    if topic.access.producers or topic.access.waiting:
        return True
    # The messages of a source are those of its shadows, too.
    if isinstance(topic, PersistentTopic) and topic.ledger.trimming.has_shadows:
        return True
    if mode == WITHOUT_SUBSCRIPTIONS or isinstance(topic, NonPersistentTopic):
        return bool(topic.subscriptions)
    assert isinstance(topic, PersistentTopic)
    return any(one.consumers or one.cursor.backlog for one in topic.subscriptions.values())


def is_due(topic: Topic, policies: EffectivePolicies, now_ns: int) -> bool:
    """Returns True when the topic is to be deleted or closed now. Renews `Topic.used_at_ns` of one that is in use."""
    mode = policies.inactive_mode(topic.name)
    if mode is None:
        return False
    if in_use(topic, mode):
        topic.used_at_ns = now_ns
        return False
    unused_ns = now_ns - topic.used_at_ns
    if unused_ns < policies.of(topic.name, INACTIVE).after_s * NS_PER_SECOND:
        return False
    if policies.settings.close_inactive:
        return True
    retained_minutes = policies.of(topic.name, RETAINED).minutes
    return 0 <= retained_minutes * 60 * NS_PER_SECOND <= unused_ns


class InactiveTopicRounds:
    """Looks at all open topics every `brokerDeleteInactiveTopicsFrequencySeconds`."""

    def __init__(
        self,
        registry: TopicRegistry,
        deletions: Deletions,
        now_ns: Callable[[], int],
        kept: frozenset[str] = frozenset(),
    ) -> None:
        """`kept`: full names of topics that are never deleted, because the broker itself publishes to them."""
        self._registry = registry
        self._deletions = deletions
        self._now_ns = now_ns
        self._kept = kept
        self._looked_ns = now_ns()
        self._running = False

    @property
    def due(self) -> bool:
        """True when it is time to look again."""
        frequency_ns = self._registry.settings.inactive_frequency_s * NS_PER_SECOND
        return not self._running and self._now_ns() - self._looked_ns >= frequency_ns

    async def look(self) -> None:
        """Deletes or closes the topics that are due; failures are logged and tried again at the next look."""
        self._looked_ns = self._now_ns()
        self._running = True
        try:
            async for topic in in_slices(list(self._registry.topics.values()), self._registry.now_ns):
                # No coroutine for a topic in use: it would cost more than the look.
                if self._is_due(topic):
                    await self._end(topic)
        finally:
            self._running = False

    async def look_at(self, topic: Topic) -> None:
        """Deletes or closes one topic if it is due."""
        if self._is_due(topic):
            await self._end(topic)

    def _is_due(self, topic: Topic) -> bool:
        name = topic.name
        # First: a topic that was closed during the look may have been taken apart.
        return (
            not topic.closed
            and is_due(topic, self._registry.policies, self._now_ns())
            # Names with two underscores are Pulsar's own system topics.
            and not (str(name) in self._kept or name.local.startswith("__"))
        )

    async def _end(self, topic: Topic) -> None:
        unused_s = (self._now_ns() - topic.used_at_ns) // NS_PER_SECOND
        try:
            if self._registry.settings.close_inactive:
                await self._registry.unload(topic.name)
                log.info("%s closed: not used for %d s", topic.name, unused_s)
                return
            # Without a pause since `is_due`: a client that comes now finds the topic closed and asks again.
            await self._deletions.topic(topic.name, force=False)
            log.info("%s deleted: not used for %d s", topic.name, unused_s)
            if topic.name.partition >= 0 and self._registry.settings.delete_inactive_partitioned_metadata:
                await self._deletions.forget_partitioned(topic.name.base)
        except BrokerError as error:
            log.warning("! %s could not be deleted or closed as unused: %s", topic.name, error)
