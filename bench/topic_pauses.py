"""The longest pause of the event loop in each walk over many topics.

`python -m bench.topic_pauses [--topics 20000] [--kind connected] [--only scrape]`, a minute for each 10,000

Starts a broker with the embedded store in this process, opens topics with a subscription, a producer and a consumer on one
connection, or another kind of `bench.many_topics`, and begins the walks one after the other. A timer every millisecond
stands for another client's PING: a pause is the CPU time of the loop's thread from one to the next. So other programs on the
machine change nothing. Python's garbage collector is off: its pauses are no part of a walk.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.many_topics import KINDS, Topics, embedded_broker
from bench.stored_topics import Pauses
from broker.compose.broker_service import BrokerService
from broker.compose.metrics_source import MetricsSource, scraper_of
from broker.metrics.exposition import ExpositionSettings
from broker.metrics.http import compressed
from broker.metrics.network import NetworkSettings
from broker.metrics.scraper import Scraper
from broker.service.lifecycle import namespace_topics
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.lifecycle.quota_rounds import QuotaRounds
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_lists import TopicsPattern
from tests.support.raw_client import RawConnection

NAMESPACE: Final = "public/default"
WATCHERS: Final = 20
CREATIONS: Final = 50


async def reconfigure(broker: BrokerService) -> None:
    """Takes settings, and waits until the slices are over."""
    registry = broker.registry
    registry.reconfigure(registry._ledger_settings, registry.settings)
    await asyncio.sleep(len(registry.topics) / 2_000)


async def watch(broker: BrokerService, connection: RawConnection) -> None:
    """Makes watchers of all topics, on the connection."""
    for number in range(WATCHERS):
        connection.send(
            "WATCH_TOPIC_LIST",
            request_id=number,
            watcher_id=number,
            namespace=NAMESPACE,
            topics_pattern="public/default/.*",
        )
        await connection.receive("WATCH_TOPIC_LIST_SUCCESS", timeout_s=600)


async def create(topics: Topics, connection: RawConnection) -> None:
    """Creates topics that the watchers hear of."""
    for _ in range(CREATIONS):
        await topics.open()
    for _ in range(CREATIONS * WATCHERS):
        await connection.receive("WATCH_TOPIC_UPDATE", timeout_s=600)


async def lose(broker: BrokerService, connection: RawConnection) -> None:
    """Closes the connection of all producers and consumers."""
    await connection.close()
    topics = list(broker.registry.topics.values())
    while any(topic.access.producers for topic in topics[-200:]):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.05)
    await asyncio.sleep(len(topics) / 20_000)


def scraper_with(broker: BrokerService, settings: ExpositionSettings) -> Scraper:
    """Returns a scraper that keeps sums and has read no topic."""
    source = MetricsSource(broker, consumers=False, producers=False, keeps_sums=True)
    return Scraper(settings, "bench", source, broker.environment.now_ns, NetworkSettings())


async def sent(scraper: Scraper) -> None:
    """Scrapes, and compresses the text as the admin port does."""
    for _ in compressed((await scraper.scrape("")).chunks):
        await asyncio.sleep(0)


def scrapes(broker: BrokerService) -> dict[str, Callable[[], Awaitable[object]]]:
    """Returns scrapes of each kind by their title; the first of a kind that keeps sums reads every topic."""
    every_topic = scraper_of(broker)
    by_namespace = scraper_with(broker, ExpositionSettings(cluster="bench", topic_level=False))
    without_idle = scraper_with(broker, ExpositionSettings(cluster="bench", idle_topics=False))
    return {
        "first scrape by namespace": lambda: sent(by_namespace),
        "scrape by namespace": lambda: sent(by_namespace),
        "first scrape without idle topics": lambda: sent(without_idle),
        "windows, without which every topic would be new": without_idle.roll_topics,
        "scrape without idle topics": lambda: sent(without_idle),
        "scrape of every topic": lambda: sent(every_topic),
    }


async def main(topics: int, kind: str, only: str, folder: Path) -> None:
    """Opens, walks, and prints."""
    async with embedded_broker(folder) as broker:
        registry, now_ns = broker.registry, broker.environment.now_ns
        connection = await RawConnection.open(broker.addresses.service_url)
        await connection.connect()
        made = Topics(broker, connection)
        for _ in range(topics):
            await KINDS[kind](made)
        watching = await RawConnection.open(broker.addresses.service_url)
        await watching.connect()
        scraper, pattern = scraper_of(broker), TopicsPattern("public/default/.*")

        async def chosen() -> None:
            await pattern.choose(await registry.names(NAMESPACE))

        def trim(topic: PersistentTopic) -> None:
            topic.ledger.trimming.trim(0, without_cursors=True)

        walks: dict[str, Callable[[], Awaitable[object]]] = {
            "settings changed": lambda: reconfigure(broker),
            "a policy of the namespace": lambda: registry.namespace_changed(NAMESPACE),
            "names of the namespace": lambda: registry.names(NAMESPACE),
            "names by a pattern": chosen,
            "expiry": TopicRounds(registry, "expiry", lambda topic: topic.expiry.look()).run,
            "quotas": QuotaRounds(registry, now_ns).run,
            "lost entries": HoleRounds(registry, now_ns).run,
            "unused topics": InactiveTopicRounds(registry, broker.deletions, now_ns).look,
            "trimming": TopicRounds(registry, "trimming", trim).run,
            "window of the metrics": scraper.roll_topics,
            **scrapes(broker),
            f"{WATCHERS} watchers": lambda: watch(broker, watching),
            f"{CREATIONS} topics that {WATCHERS} watchers hear of": lambda: create(made, watching),
            "connection lost": lambda: lose(broker, connection),
            "unload": lambda: namespace_topics.unload(registry, NAMESPACE),
        }
        gc.disable()
        pauses = Pauses()
        probe = asyncio.create_task(pauses.run())
        print(f"{topics:,} topics; the longest pause in ms, and the CPU of the walk in s")
        for title, walk in walks.items():
            if only not in title:
                continue
            began_s = time.thread_time()
            pauses.begin()
            await walk()
            await asyncio.sleep(0.005)  # The last pause ends with a look.
            print(f"{pauses.cpu_ms:8.1f} {time.thread_time() - began_s:8.2f}  {title}", flush=True)
        for number in range(0 if only else topics):
            if number % 2:
                await made.open()
        began_s = time.thread_time()
        pauses.begin()
        await registry.close()
        await asyncio.sleep(0.005)
        print(f"{pauses.cpu_ms:8.1f} {time.thread_time() - began_s:8.2f}  stop, {topics // 2:,} topics open")
        probe.cancel()
        await watching.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="The longest pause of the loop in each walk over many topics."
    )
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--kind", choices=KINDS, default="connected")
    parser.add_argument("--only", default="", help="walks whose title has this text; without the stop")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(given.topics, given.kind, given.only, Path(name)))
