"""`…/partitioned-stats`: the statistics of all partitions of a topic, added up and one by one.

Each partition is turned into JSON by itself, because the text of a thousand at once would hold the loop for too long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import orjson
from aiohttp import web

from broker.admin.http.answers import topic_of
from broker.admin.service_view import BROKER, RATES
from broker.admin.topics.stats import StatsOptions, add_earliest_times, stats_now
from broker.admin.topics.topic_access import owner_url, partition_topics, partitioned_shown
from foundation.value import Json

_PATH = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/partitioned-stats"
_NOT_TOGETHER = ("ownerBroker", "deduplicationStatus")
"""Fields that each partition has for itself."""
_NUMBER: Final = (int, float)
"""A tuple, because `int | float` would make a new type at each look."""
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
    options, rates, owner = StatsOptions.of(request.query), request.app[RATES], owner_url(broker)
    each = request.query.get("perPartition", "true").lower() == "true"
    found = SummedStats(each=each)
    async for topic in partition_topics(broker, name):
        part = str(topic.name)
        one = stats_now(topic, owner, rates(part), options)
        if options.earliest_times:
            await add_earliest_times(one, topic)
        found.add(part, one)
    return found.answer(await partitioned_shown(broker, name))


def joined_stats(
    request: web.Request, parts: Iterable[tuple[str, dict[str, Json]]], metadata: dict[str, Json]
) -> web.Response:
    """Returns the same answer from the statistics of partitions that other brokers have."""
    found = SummedStats(each=request.query.get("perPartition", "true").lower() == "true")
    for part, one in parts:
        found.add(part, one)
    return found.answer(metadata)


class SummedStats:
    """The sums over partitions."""

    def __init__(self, *, each: bool) -> None:
        """`each`: those of each partition are shown too."""
        self._each = each
        self._total: dict[str, Json] = {}
        self._texts: list[bytes] = []

    def add(self, part: str, one: dict[str, Json]) -> None:
        """Adds those of a partition."""
        if self._each:
            self._texts.append(b"%b:%b" % (_json(part), _json(one)))
        _add(self._total, one)

    def answer(self, metadata: dict[str, Json]) -> web.Response:
        """Returns all, with the stored metadata of the topic."""
        total = self._total
        for key in _NOT_TOGETHER:
            total.pop(key, None)
        # Pulsar's value for a partitioned topic.
        total["oldestBacklogMessageAgeSeconds"] = 0
        total["metadata"] = metadata
        body = b'%b,"partitions":{%b}}' % (_json(total)[:-1], b",".join(self._texts))
        return web.Response(body=body, content_type="application/json")


def _json(value: Json) -> bytes:
    """Returns JSON. `json.dumps` takes eight times as long, which is half of the time of a whole request."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Half of a UTF-16 pair, as JSON can have it in a property, has no UTF-8.
        return json.dumps(value).encode()


def _add(total: dict[str, Json], one: dict[str, Json]) -> None:
    """Adds the statistics of a partition: numbers are summed, lists joined, objects added member by member."""
    for key, value in one.items():
        # Nearly all numbers of an idle partition are 0 and its lists empty: a thousand of them would take 40 ms.
        if not value and key in total:
            continue
        before = total.get(key)
        if isinstance(value, dict):
            # Copied: the sum must not change the partition's own numbers, or a value that all partitions share.
            inner: dict[str, Json] = before if isinstance(before, dict) else {}
            _add(inner, value)
            total[key] = inner
        elif before is None:
            total[key] = list(value) if isinstance(value, list) else value
        elif isinstance(before, _NUMBER) and isinstance(value, _NUMBER):
            # A boolean is a number in Python.
            total[key] = before or value if value is True else _joined(key, before, value)
        elif isinstance(before, list) and isinstance(value, list):
            before += value


def _joined(key: str, before: float, value: float) -> float:
    if key in _GREATEST:
        return max(before, value)
    if key in _LEAST:
        return min((one for one in (before, value) if one > 0), default=before)
    return before + value


PARTITIONED_STATS_ROUTES = (web.get(_PATH, stats),)
"""Statistics of partitioned topics."""
