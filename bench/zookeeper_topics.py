"""Topics on ZooKeeper: creation, a start, the records behind it, the list of their namespace, partitions, and openings.

`python -m bench.zookeeper_topics [--topics 100000]`, some minutes; needs Java and Maven

Starts one ZooKeeper with its defaults, and a broker with an embedded bookie on it. The topics have a subscription each, all
in one namespace. Pauses are those of the loop in CPU time, as in `bench.many_topics`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import processes, stored_topics
from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.cluster.unowned_bundles import LOOK_INTERVAL_S
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.topic_name import parse_topic_name
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.bookie_settings import for_directory
from tests.support.java import ZooKeeper, class_path
from tests.support.memory_broker import broker_with

POM: Final = Path(__file__).parents[1] / "tests/bookie_stub/java/pom.xml"
OPENED: Final = 500
IDLE_S: Final = 30


async def main(topics: int, zookeeper: str, folder: Path) -> None:
    """Writes the topics, starts a broker, and prints."""
    url = ZookeeperUrl(zookeeper, "/bench")
    store = await ZookeeperMetadataStore.open(url, session_timeout_s=60, timeout_s=60)
    began = time.perf_counter()
    await stored_topics.write_nodes(store, topics)
    took_s = time.perf_counter() - began
    print(f"{topics:,} topics written in {took_s:.0f} s, {topics / took_s:,.0f} a second", flush=True)
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)
    bookie = Bookie.open(for_directory(folder), loop.call_soon_threadsafe, at_end_of_turn=turn.commit)
    began = time.perf_counter()
    settings = (stored_topics.ASLEEP, "exposeTopicLevelMetricsInPrometheus=false")
    async with broker_with(store, EmbeddedLedgerClient(bookie), turn, *settings) as service:
        print(
            f"start to ready: {time.perf_counter() - began:.2f} s, {processes.memory(os.getpid()).rss:,.0f} MiB"
        )
        stored_topics.collect_as_a_process()
        registry, pauses = service.registry, stored_topics.Pauses()
        probe = asyncio.create_task(pauses.run())
        async with stored_topics.shown("a list of the namespace", pauses):
            names = await registry.names("public/default")
        print(f"  {len(names):,} names, {sum(map(len, names)):,} bytes")
        dormant = registry.dormant
        async with stored_topics.shown(f"records filled, {LOOK_INTERVAL_S} s of waiting among it", pauses):
            while dormant.filling or dormant.count < topics:  # noqa: ASYNC110 - nobody waits for it
                await asyncio.sleep(0.05)
        print(f"  {dormant.count:,} dormant topics, {processes.memory(os.getpid()).rss:,.0f} MiB")
        probe.cancel()
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        print(
            f"idle: {(time.process_time() - cpu) / IDLE_S * 100:.2f} % of a core over {IDLE_S} s", flush=True
        )
        probe = asyncio.create_task(pauses.run())
        parts = parse_topic_name("persistent://public/default/parts")
        async with stored_topics.shown(f"{stored_topics.PARTITIONS:,} partitions created", pauses):
            await service.partitioned.create(parts, stored_topics.PARTITIONS)
        times = []
        async with stored_topics.shown(f"{OPENED} topics opened, one after the other", pauses):
            for number in range(0, topics, max(topics // OPENED, 1)):
                name = parse_topic_name(f"public/default/topic-{number}")
                began = time.perf_counter()
                await registry.ownership.owner_of(name, authoritative=True)
                topic = await registry.get(name, create=False)
                assert isinstance(topic, PersistentTopic)
                times.append((time.perf_counter() - began) * 1000)
        times.sort()
        print(f"  {times[len(times) // 2]:.1f} ms (median), {times[len(times) * 99 // 100]:.1f} ms (99 %)")
        probe.cancel()
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Topics on ZooKeeper.")
    parser.add_argument("--topics", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = ZooKeeper(class_path(POM, Path(name)), Path(name))
        server.start()
        try:
            asyncio.run(main(given.topics, server.address, Path(name)))
        finally:
            server.stop()
