"""Backlog rounds: the looks at every topic's backlog that fall due with time.

Quotas, the time to live of messages, and subscriptions without a consumer have an interval each; a changed interval acts at
the next start. The search for forgotten entries obeys changes at run time. Dormant topics that are due are opened for all of
this, and idle topics fall asleep.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.timers import Timers
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.dormant_filling import DormantFilling
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.quota_rounds import QuotaRounds
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.lifecycle.unused_subscriptions import delete_unused_subscriptions
from broker.service.topics.persistent_topic import expire
from broker.service.topics.topic_registry import TopicRegistry
from foundation.units import SECONDS_PER_MINUTE

_HOLES_INTERVAL_S: Final = 1
"""Rounds that look for forgotten entries keep their own time, which may change at run time; in between, searches go on."""
_DORMANCY_INTERVAL_S: Final = 1
"""Resolution of `dormantTopicsAfterSeconds`, and of the moments at which dormant topics are due."""


def start_backlog_rounds(
    registry: TopicRegistry,
    dormancy: Dormancy,
    timers: Timers,
    tasks: BackgroundTasks,
) -> None:
    """Begins to make the rounds; `tasks` runs them, and cancels one that is under way when the broker stops."""
    settings = registry.settings
    expiry = TopicRounds(registry, "expiry", expire)
    quotas = QuotaRounds(registry, registry.now_ns)
    unused = TopicRounds(registry, "unused subscriptions", delete_unused_subscriptions)
    looks: tuple[tuple[TopicRounds | QuotaRounds, int], ...] = (
        (expiry, settings.ttl_interval_min * SECONDS_PER_MINUTE),
        (quotas, settings.quota_interval_s),
        (unused, settings.subscription_interval_min * SECONDS_PER_MINUTE),
    )
    for rounds, interval_s in looks:
        timers.every(interval_s, partial(_begin, tasks, rounds))
    for each in (dormancy, DormantFilling(registry, dormancy)):
        timers.every(_DORMANCY_INTERVAL_S, partial(_begin, tasks, each))
    timers.every(_HOLES_INTERVAL_S, partial(_begin, tasks, HoleRounds(registry, registry.now_ns)))


def _begin(
    tasks: BackgroundTasks, rounds: TopicRounds | QuotaRounds | HoleRounds | Dormancy | DormantFilling
) -> None:
    tasks.spawn(rounds.run(), rounds.title)
