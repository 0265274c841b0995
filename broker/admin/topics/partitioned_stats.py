"""`…/partitioned-stats`: the statistics of all partitions of a topic, added up and one by one.

Each partition is turned into JSON by itself, because the text of a thousand at once would hold the loop for too long.
"""

from __future__ import annotations

import json

from aiohttp import web

from broker.admin.http.answers import topic_of
from broker.admin.service_view import BROKER, RATES
from broker.admin.topics.stats import StatsOptions, topic_stats
from broker.admin.topics.topic_access import owner_url, partition_topics, partitioned_shown
from broker.service.namespaces import Json

_PATH = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/partitioned-stats"
_NOT_TOGETHER = ("ownerBroker", "deduplicationStatus")
"""Fields that each partition has for itself."""
_GREATEST = frozenset(
    (
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "lastOffloadLedgerId",
        "lastOffloadSuccessTimeStamp",
        "lastOffloadFailureTimeStamp",
        "lastPublishTimeStamp",
        "lastExpireTimestamp",
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastCompactionSucceedTimestamp",
        "lastCompactionFailedTimestamp",
        "lastCompactionDurationTimeInMills",
    )
)
"""Numbers of which the greatest one stands for all partitions."""
_LEAST = frozenset(
    ("topicCreationTimeStamp", "earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog")
)
"""Numbers of which the least one above 0 stands for all partitions."""


async def stats(request: web.Request) -> web.Response:
    """Returns the sums over all partitions, and with `perPartition` (the default) those of each."""
    broker, name = request.app[BROKER], topic_of(request)
    options = StatsOptions.of(request.query)
    each = request.query.get("perPartition", "true").lower() == "true"
    total: dict[str, Json] = {}
    texts: list[str] = []
    async for topic in partition_topics(broker, name):
        rates = request.app[RATES](str(topic.name))
        one = await topic_stats(topic, owner_url(broker), rates, options)
        if each:
            texts.append(f"{json.dumps(str(topic.name))}:{json.dumps(one)}")
        _add(total, {key: value for key, value in one.items() if key not in _NOT_TOGETHER})
    # Pulsar's value for a partitioned topic.
    total["oldestBacklogMessageAgeSeconds"] = 0
    total["metadata"] = await partitioned_shown(broker, name)
    body = f'{json.dumps(total)[:-1]},"partitions":{{{",".join(texts)}}}}}'
    return web.Response(body=body.encode(), content_type="application/json")


def _add(total: dict[str, Json], one: dict[str, Json]) -> None:
    """Adds the statistics of a partition: numbers are summed, lists joined, objects added member by member."""
    for key, value in one.items():
        before = total.get(key)
        if isinstance(value, dict):
            # Copied: the sum must not change the partition's own numbers, or a value that all partitions share.
            inner: dict[str, Json] = before if isinstance(before, dict) else {}
            _add(inner, value)
            total[key] = inner
        elif before is None:
            total[key] = list(value) if isinstance(value, list) else value
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        elif isinstance(before, bool) and isinstance(value, bool):
            total[key] = before or value
        elif isinstance(before, int | float) and isinstance(value, int | float):
            total[key] = _joined(key, before, value)


def _joined(key: str, before: float, value: float) -> float:
    if key in _GREATEST:
        return max(before, value)
    if key in _LEAST:
        return min((one for one in (before, value) if one > 0), default=before)
    return before + value


PARTITIONED_STATS_ROUTES = (web.get(_PATH, stats),)
"""Statistics of partitioned topics."""
