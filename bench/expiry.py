"""`python -m bench.expiry`: a round of expiry over many topics, and the longest time for which it holds the event loop.

Everything is in memory: the round itself is measured, not a disk. All messages are old enough. Publishing them takes most of
the time, about 20 s per million.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Final

from broker.model.topic_name import parse_topic_name
from broker.service.backlog.rounds import TopicRounds
from broker.service.consumer import SubscribeOptions, SubscriptionType
from broker.service.persistent_topic import PersistentTopic
from broker.service.producer import Producer
from tests.fakes.messages import message
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort
from tests.fakes.sends import send
from tests.support.memory_broker import memory_broker

TTL_S: Final = 1
PER_TURN: Final = 500
"""Messages published before confirmations get their turn."""


def main() -> int:
    """Prints one line."""
    parser = argparse.ArgumentParser("python -m bench.expiry", description="Expires messages in many topics.")
    parser.add_argument("--topics", type=int, default=10_000, metavar="N")
    parser.add_argument("--entries", type=int, default=100, metavar="N", help="per topic")
    arguments = parser.parse_args()
    asyncio.run(_measure(arguments.topics, arguments.entries))
    return 0


async def _measure(topics: int, entries: int) -> None:
    # Its own rounds must not come in between.
    async with memory_broker(
        f"ttlDurationDefaultInSeconds={TTL_S}", "messageExpiryCheckIntervalInMinutes=100000"
    ) as service:
        body = message(b"x" * 100)
        for number in range(topics):
            topic = await service.registry.get(
                parse_topic_name(f"persistent://public/default/t{number}"), create=True
            )
            assert isinstance(topic, PersistentTopic)
            await _fill(topic, body, entries)
        await asyncio.sleep(2 * TTL_S)
        gc.collect()
        gc.freeze()
        held = _Held()
        watch = asyncio.create_task(held.watch())
        began = time.perf_counter()
        await TopicRounds(service.registry, "expiry", lambda topic: topic.expiry.look()).run()
        took_s = time.perf_counter() - began
        watch.cancel()
        left = sum(
            one.cursor.backlog
            for topic in service.registry.topics.values()
            if isinstance(topic, PersistentTopic)
            for one in topic.subscriptions.values()
        )
    print(
        f"{topics} topics, {topics * entries} entries: {took_s:.2f} s, {left} left, loop held at most"
        f" {held.longest_s * 1000:.1f} ms ({held.longest_cpu_s * 1000:.1f} ms of CPU)"
    )


async def _fill(topic: PersistentTopic, body: bytes, entries: int) -> None:
    options = SubscribeOptions(
        subscription="s", kind=SubscriptionType.SHARED, consumer_id=1, consumer_name="c", earliest=True
    )
    subscription, consumer = await topic.subscribe(FakeConsumerPort(), options)
    subscription.remove_consumer(consumer)
    producer = Producer(topic, FakeProducerPort(), producer_id=0, name="p")
    await topic.add_producer(producer)
    for number in range(entries):
        send(producer, number, body)
        if number % PER_TURN == PER_TURN - 1:
            await asyncio.sleep(0)
    port = producer.port
    assert isinstance(port, FakeProducerPort)
    while len(port.receipts) < entries:  # noqa: ASYNC110  # receipts come with the turns of the loop
        await asyncio.sleep(0)
    await topic.remove_producer(producer)


class _Held:
    """Notes the longest time between two turns of the loop, and the CPU time of the loop's thread in it."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        before, cpu_before = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0)
            now, cpu = time.perf_counter(), time.thread_time()
            self.longest_s = max(self.longest_s, now - before)
            # On a busy machine the other time has waits for a processor in it.
            self.longest_cpu_s = max(self.longest_cpu_s, cpu - cpu_before)
            before, cpu_before = now, cpu


if __name__ == "__main__":
    raise SystemExit(main())
