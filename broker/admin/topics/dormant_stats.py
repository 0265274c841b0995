"""The statistics of a dormant topic, from its record: levels as they are, counters 0 as after each opening."""

from __future__ import annotations

from typing import Final

from broker.admin.topics.stats import NO_SUBSCRIPTION_NUMBERS, NOT_HERE, TOPIC_RATES
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_topic import DormantTopic, Waiting
from foundation.value import Json

_NO_TRAFFIC: Final[dict[str, Json]] = {
    **dict.fromkeys(TOPIC_RATES, 0.0),
    "bytesInCounter": 0,
    "msgInCounter": 0,
    "bytesOutCounter": 0,
    "msgOutCounter": 0,
    "averageMsgSize": 0.0,
    "publishers": [],
    "waitingPublishers": 0,
    "replication": {},
    "publishRateLimitedTimes": 0,
}


def dormant_stats(record: DormantTopic, settings: ServiceSettings, wall_ms: int) -> dict[str, Json]:
    """Returns the members of `stats_now` that a list of all topics shows; `wall_ms`: this moment."""
    return {
        **NOT_HERE,
        **_NO_TRAFFIC,
        "storageSize": record.size_bytes,
        "backlogSize": record.backlog_bytes,
        "subscriptions": {
            one.name: {
                **NO_SUBSCRIPTION_NUMBERS,
                # No consumer has come since, as of a topic that was opened.
                "type": "None",
                "consumers": [],
                "msgBacklog": one.backlog,
                "msgBacklogNoDelayed": one.backlog,
                "backlogSize": waiting.size_bytes,
                **_age(waiting, settings, wall_ms),
                "isDurable": True,
                "durable": True,
                "isReplicated": one.replicated,
                "replicated": one.replicated,
            }
            for one, waiting in record.by_subscription()
        },
    }


def _age(waiting: Waiting, settings: ServiceSettings, wall_ms: int) -> dict[str, Json]:
    age_s = waiting.age_s(settings, wall_ms) if settings.subscription_ages else -1
    return {} if age_s < 0 else {"oldestBacklogMessageAgeSeconds": age_s}
