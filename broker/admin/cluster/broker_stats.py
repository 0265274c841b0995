"""`/admin/v2/broker-stats`: numbers of this broker, of its open topics and of its dormant ones.

Numbers of a Java process (its beans, the arenas of its memory pools) do not exist here, so these lists are empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from aiohttp import web

from broker.admin.http.answers import Conflict, NotAcceptable, answer, done
from broker.admin.service_view import BROKER, RATES, BrokerView, RatesOf
from broker.admin.topics.dormant_stats import dormant_stats
from broker.admin.topics.stats import stats_now
from broker.service.namespaces.bundles import Bundles, bundles_of
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json

TOPICS_PER_SLICE: Final = 20
"""Topics that are read before clients get their turn: some milliseconds."""
ALLOCATORS: Final = ("default", "ml-cache")
"""Names of Pulsar's memory pools."""
_NO_ARENAS: Final[dict[str, Json]] = {
    "numDirectArenas": 0,
    "numHeapArenas": 0,
    "numThreadLocalCaches": 0,
    "normalCacheSize": 0,
    "smallCacheSize": 0,
    "usedDirectMemory": 0,
    "directArenas": [],
    "heapArenas": [],
}
_WRAPPER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper"
_SAME: Final = (
    "publishers",
    "replication",
    "subscriptions",
    "averageMsgSize",
    "msgRateIn",
    "msgRateOut",
    "msgThroughputIn",
    "msgThroughputOut",
    "storageSize",
    "backlogSize",
)
_RENAMED: Final = {
    "msgInCount": "msgInCounter",
    "bytesInCount": "bytesInCounter",
    "msgOutCount": "msgOutCounter",
    "bytesOutCount": "bytesOutCounter",
}
"""Members by the name of the same number in `…/stats` of a topic."""


async def topics(request: web.Request) -> web.Response:
    """Returns the statistics of all open and dormant topics, by namespace, bundle, domain and name."""
    broker = request.app[BROKER]
    found: dict[str, dict[str, dict[str, dict[str, Json]]]] = {}
    bundles: dict[str, Bundles] = {}
    for index, (topic, stats) in enumerate(_stats(broker, request.app[RATES])):
        if index % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
            await asyncio.sleep(0)
        namespace, name = topic.namespace, str(topic)
        if not broker.namespaces.exists(namespace):
            continue  # Deleted while this request waited.
        bundle = bundles.setdefault(namespace, bundles_of(broker.namespaces, namespace)).of(name)
        domains = found.setdefault(namespace, {}).setdefault(str(bundle), {})
        domains.setdefault(topic.domain, {})[name] = _shown(stats)
    return answer(cast("Json", found))


async def metrics(request: web.Request) -> web.Response:
    """Returns counts of the broker and of each namespace with open or dormant topics, in the form of Pulsar's own list.

    The numbers of `/metrics` are more, and exact; this list is for older tools.
    """
    broker = request.app[BROKER]
    manager, cluster = broker.cache.manager, broker.namespaces.cluster
    reads = manager.reads()
    cache: dict[str, Json] = {
        "brk_ml_count": len(manager.caches),
        "brk_ml_cache_used_size": manager.used_bytes,
        "brk_ml_cache_entries": manager.entries,
        "brk_ml_cache_inserted_entries_total": broker.cache.inserted_entries,
        "brk_ml_cache_evicted_entries_total": sum(manager.stats.evicted_entries.values()),
        "brk_ml_cache_x_hits_total": reads.hit_entries,
        "brk_ml_cache_x_misses_total": reads.miss_entries,
    }
    loads: dict[str, Json] = {"brk_topic_load_x_total": broker.registry.loads}
    return answer(
        [
            {"metrics": cache, "dimensions": {}},
            {"metrics": loads, "dimensions": {"cluster": cluster, "metric": "pulsar_topic_load_times"}},
            *await _namespaces(broker, request.app[RATES]),
        ]
    )


async def mbeans(request: web.Request) -> web.Response:
    """Returns an empty list: beans belong to Java."""
    return answer([])


async def allocator(request: web.Request) -> web.Response:
    """Returns the memory of one of Pulsar's two allocators; 406 for another name.

    `ml-cache` uses the bytes of the entry cache. The memory of a Python process has no arenas, and its parts are not
    counted (-1).
    """
    name = request.match_info["allocator"]
    if name not in ALLOCATORS:
        raise NotAcceptable(f"Invalid allocator name : {name}")
    used = request.app[BROKER].cache.manager.used_bytes if name == ALLOCATORS[1] else -1
    return answer({**_NO_ARENAS, "usedHeapMemory": used})


async def bookie_operations(request: web.Request) -> web.Response:
    """Returns an empty object, as Pulsar does while no operation on a ledger waits; they are not counted here."""
    return answer({})


async def load_report(request: web.Request) -> web.Response:
    """Returns the load of this broker and its bundles (LocalBrokerData); 204 with `loadBalancerEnabled=false`, as Pulsar."""
    broker = request.app[BROKER]
    if not broker.settings.bool("loadBalancerEnabled"):
        return done()
    return answer(cast("Json", await broker.registry.ownership.load_report()))


async def availability(request: web.Request) -> web.Response:
    """Returns 409 in the words of Pulsar, whose default load manager does not know the resources of brokers either."""
    raise Conflict(f"{_WRAPPER} does not support this operation")


def _stats(broker: BrokerView, rates: RatesOf) -> Iterable[tuple[TopicName, dict[str, Json]]]:
    owner, dormant = broker.addresses.admin_url, broker.registry.dormant
    settings, wall_ms = broker.registry.settings, broker.registry.environment.wall_ms()
    # Over a copy: the caller waits between two topics, and topics may come and go meanwhile.
    opened = dict(broker.registry.topics)
    for name, topic in opened.items():
        if not topic.closed:
            yield topic.name, stats_now(topic, owner, rates(name))
    for name, record in dormant:
        # One that has fallen asleep since, or has been woken, is shown once.
        if name not in opened and dormant.get(name) is record:
            yield parse_topic_name(name), dormant_stats(record, settings, wall_ms)


def _shown(stats: dict[str, Json]) -> Json:
    shown = {name: stats[name] for name in _SAME}
    shown |= {name: stats[other] for name, other in _RENAMED.items()}
    shown["producerCount"] = len(cast("list[Json]", stats["publishers"]))
    return shown


async def _namespaces(broker: BrokerView, rates: RatesOf) -> list[Json]:
    sums: dict[str, dict[str, float]] = {}
    for index, (topic, stats) in enumerate(_stats(broker, rates)):
        if index % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
            await asyncio.sleep(0)
        subscriptions = cast("dict[str, dict[str, Json]]", stats["subscriptions"]).values()
        numbers = {
            "brk_in_rate": stats["msgRateIn"],
            "brk_in_tp_rate": stats["msgThroughputIn"],
            "brk_out_rate": stats["msgRateOut"],
            "brk_out_tp_rate": stats["msgThroughputOut"],
            "brk_storage_size": stats["storageSize"],
            "brk_no_of_producers": len(cast("list[Json]", stats["publishers"])),
            "brk_no_of_subscriptions": len(subscriptions),
            "brk_no_of_consumers": sum(len(cast("list[Json]", one["consumers"])) for one in subscriptions),
            # A subscription of a non-persistent topic has no backlog.
            "brk_msg_backlog": sum(cast("int", one.get("msgBacklog", 0)) for one in subscriptions),
        }
        total = sums.setdefault(topic.namespace, dict.fromkeys(numbers, 0))
        for name, number in numbers.items():
            total[name] += cast("float", number)
    return [
        {"metrics": {**total}, "dimensions": {"namespace": namespace}} for namespace, total in sums.items()
    ]


BROKER_STATS_ROUTES = (
    web.get("/admin/v2/broker-stats/topics", topics),
    web.get("/admin/v2/broker-stats/metrics", metrics),
    web.get("/admin/v2/broker-stats/mbeans", mbeans),
    web.get("/admin/v2/broker-stats/load-report", load_report),
    web.get("/admin/v2/broker-stats/allocator-stats/{allocator}", allocator),
    web.get("/admin/v2/broker-stats/bookieops", bookie_operations),
    web.get("/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}", availability),
)
"""The routes."""
