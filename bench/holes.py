"""A million acknowledgement holes in one cursor, and the redelivery of lost entries.

`python -m bench.holes [--holes 1000000] [--lost 20000] [--seconds 4] [--only cursor|redelivery]`

    cursor         for acknowledgements of every second entry, of a random half, and of one entry in 100 at random: the CPU
                   time of one, the memory of all, the CPU time and size of the cursor's stored info, the CPU time to
                   restore it, that of an acknowledgement that fills the first hole, and the longest time for which the event
                   loop stood still while the info was stored and restored as the broker does it
    redelivery     a broker in memory in this process with a Shared consumer of the official client and steady traffic: CPU
                   time of the event loop's thread while the redelivery of lost entries is switched off and on, in turn

The client's own threads are not counted. A subscription gets at most `GROUP_ENTRIES` lost entries per second, so 20,000
of them are enough for 4 pairs of measurements, and 100,000 would cost the same share of the CPU for longer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import sys
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Sequence
from typing import Final, cast

import pulsar

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_info_writer import encode_within
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.managed_ledger_info import decode_cursor_info
from broker.model.position import EARLIEST, Position
from broker.service.backlog.hole_rounds import GROUP_ENTRIES
from broker.service.backlog.hole_watch import HoleWatch
from broker.service.backlog.holes import next_holes, serving_dispatcher
from broker.service.consumer import Consumer
from broker.service.persistent_topic import PersistentTopic
from broker.service.subscription import Subscription
from magnetar.process.standalone import SWITCH_INTERVAL_S
from tests.support.memory_broker import memory_broker

LEDGER: Final = 5
TOPIC: Final = "persistent://public/default/holes"
FRONT: Final = 10_000
"""Acknowledgements of entries in front that are measured."""
TRAFFIC_PER_S: Final = 1000
"""Messages per second beside the redelivery."""
PAIRS: Final = 4
"""Measurements with the redelivery off and on."""
_NO_LIMIT: Final = 1 << 40


def cursor_figures(title: str, entries: int, acknowledged: Sequence[int]) -> None:
    """Prints the figures of one cursor."""
    ledgers = LedgerList([], LedgerInfo(LEDGER, entries))
    acks = Acks(ledgers, Position(LEDGER, -1))
    began = time.thread_time()
    for entry in acknowledged:
        acks.acknowledge(((LEDGER, entry),))
    each_ns = (time.thread_time() - began) / len(acknowledged) * 1e9
    tracemalloc.start()
    twin = Acks(ledgers, Position(LEDGER, -1))
    for entry in acknowledged:
        twin.acknowledge(((LEDGER, entry),))
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    ranges = acks.beyond.count_ranges()
    began = time.thread_time()
    copied = acks.copy()
    copy_ms = (time.thread_time() - began) * 1e3
    began = time.thread_time()
    stored = encode_within(copied, {}, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
    encode_ms = (time.thread_time() - began) * 1e3
    began = time.thread_time()
    Acks.restore(ledgers, decode_cursor_info(stored.value))
    restore_ms = (time.thread_time() - began) * 1e3
    stall_ms = asyncio.run(_longest_stall_ms(acks, ledgers, stored.value))
    front = acks.first_open(Position(-1, -1)).entry_id
    began = time.thread_time()
    for entry in range(front, front + FRONT):
        acks.acknowledge(((LEDGER, entry),))
    front_us = (time.thread_time() - began) / FRONT * 1e6
    print(f"{title}: {ranges:,} ranges")
    print(f"  one acknowledgement          {each_ns:,.0f} ns")
    print(f"  memory                       {memory / (1 << 20):.2f} MiB")
    print(f"  copied in the event loop     {copy_ms:.2f} ms")
    print(f"  encoded in a thread          {encode_ms:.1f} ms, {len(stored.value):,} bytes")
    print(f"  restored                     {restore_ms:.1f} ms")
    print(f"  one that fills the front     {front_us:.2f} µs")
    print(
        "  longest stalls of the loop   {:.1f} ms without work, {:.1f} stored, {:.1f} restored".format(
            *stall_ms
        )
    )


async def _longest_stall_ms(acks: Acks, ledgers: LedgerList, stored: bytes) -> tuple[float, float, float]:
    """Returns the longest times between two turns of the loop: without work, while a cursor is stored, and restored."""
    loop, longest, last = asyncio.get_running_loop(), 0.0, time.perf_counter()
    running = True

    def tick() -> None:
        nonlocal longest, last
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        if running:
            loop.call_later(0.001, tick)

    tick()
    await asyncio.to_thread(time.sleep, 1.0)
    idle, longest = longest, 0.0
    await asyncio.to_thread(encode_within, acks.copy(), {}, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
    storing, longest = longest, 0.0
    await asyncio.to_thread(lambda: Acks.restore(ledgers, decode_cursor_info(stored)))
    running = False
    return idle * 1e3, storing * 1e3, longest * 1e3


class Traffic:
    """A consumer that acknowledges everything once `acknowledging` is set, and steady publishing."""

    def __init__(self, url: str) -> None:
        self.client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self.acknowledging = threading.Event()
        self.received = 0
        self.stopped = False
        self.consumer = self.client.subscribe(
            TOPIC,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            receiver_queue_size=1_000_000,
            message_listener=self._receive,
        )
        # Without `block_if_queue_full` the client drops messages above its queue, and `fill` waits for them for ever.
        self.producer = self.client.create_producer(
            TOPIC, batching_enabled=False, max_pending_messages=10_000, block_if_queue_full=True
        )

    def _receive(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self.received += 1
        if self.acknowledging.is_set():
            consumer.acknowledge(message)

    def fill(self, count: int) -> None:
        """Publishes so many messages and waits until they have arrived."""
        for _ in range(count):
            self.producer.send_async(b"x" * 100, lambda *_: None)
        self.producer.flush()
        while self.received < count:
            time.sleep(0.05)

    def steady(self) -> None:
        """Publishes until `stopped`."""
        while not self.stopped:
            began = time.monotonic()
            for _ in range(TRAFFIC_PER_S // 10):
                self.producer.send_async(b"x" * 100, lambda *_: None)
            time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))


async def redelivery_figures(lost: int, seconds: int) -> None:
    """Prints the CPU time of the loop's thread with the redelivery switched off and on, in turn on one broker."""
    overrides = (
        "unackedHoleRedeliveryEnabled=false",
        "unackedHoleRedeliveryPeriodSeconds=1",
        "maxUnackedMessagesPerConsumer=0",
        "maxUnackedMessagesPerSubscription=0",
        "backlogQuotaCheckEnabled=false",
    )
    logging.getLogger("magnetar").setLevel(logging.ERROR)
    async with memory_broker(*overrides) as broker:
        traffic = await asyncio.to_thread(Traffic, broker.addresses.service_url)
        await asyncio.to_thread(traffic.fill, 2 * lost)
        topic = cast("PersistentTopic", broker.registry.topics[TOPIC])
        subscription = topic.subscriptions["s"]
        (consumer,) = subscription.consumers
        keys = list(consumer.pending)
        subscription.acknowledge(consumer, keys[1::2])
        search_ms = _search_ms(subscription)
        _lose(consumer, keys[::2])
        traffic.acknowledging.set()
        steady = threading.Thread(target=traffic.steady, daemon=True)
        steady.start()
        plain, busy = list[float](), list[float]()
        admin = broker.addresses.admin_url
        for _ in range(PAIRS):
            plain.append(await _share(seconds))
            await asyncio.to_thread(_switch, admin, on=True)
            watch = await _redelivering(subscription)
            before = watch.redelivered
            busy.append(await _share(seconds))
            assert watch.redelivered - before >= GROUP_ENTRIES * (seconds - 1), "too few entries were lost"
            await asyncio.to_thread(_switch, admin, on=False)
        traffic.stopped = True
        await asyncio.to_thread(steady.join)
        await asyncio.to_thread(traffic.client.close)
    print(f"redelivery of {lost:,} lost entries beside {TRAFFIC_PER_S:,} messages/s, {seconds} s each:")
    print(f"  a search of {lost:,} holes that finds none lost  {search_ms:.1f} ms")
    for title, shares in (("switched off", plain), (f"{GROUP_ENTRIES:,} entries/s", busy)):
        print(f"  CPU of the loop, {title:<16} {' '.join(f'{share:.1%}' for share in shares)}")
    difference = statistics.median(on - off for on, off in zip(busy, plain, strict=True))
    print(f"  difference, median of the pairs   {difference:.1%}")


def _search_ms(subscription: Subscription) -> float:
    """Returns the CPU time of one search through all holes, in ms."""
    dispatcher = serving_dispatcher(subscription)
    assert dispatcher is not None
    at: Position | None = EARLIEST
    began = time.thread_time()
    while at is not None:
        _, at = next_holes(subscription, dispatcher, at, subscription.cursor.read_position)
    return (time.thread_time() - began) * 1e3


def _switch(admin: str, *, on: bool) -> None:
    """Switches the redelivery while the broker runs, as an operator does."""
    path = f"/admin/v2/brokers/configuration/unackedHoleRedeliveryEnabled/{str(on).lower()}"
    with urllib.request.urlopen(urllib.request.Request(admin + path, method="POST")):
        pass


async def _redelivering(subscription: Subscription) -> HoleWatch:
    """Waits until further entries are delivered again."""
    before = 0 if subscription.holes is None else subscription.holes.redelivered
    for _ in range(6000):
        await asyncio.sleep(0.01)
        if subscription.holes is not None and subscription.holes.redelivered > before:
            return subscription.holes
    raise TimeoutError("no lost entry was delivered again within a minute")


def _lose(consumer: Consumer, keys: list[tuple[int, int]]) -> None:
    """Leaves entries in no place, as an error in the middle of a dispatch does."""
    for key in keys:
        consumer.pending.pop(key, None)


async def _share(seconds: int) -> float:
    began, cpu = time.monotonic(), time.thread_time()
    await asyncio.sleep(seconds)
    return (time.thread_time() - cpu) / (time.monotonic() - began)


def main() -> None:
    """Prints all figures."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    parser = argparse.ArgumentParser("bench.holes", description=__doc__, allow_abbrev=False)
    parser.add_argument("--holes", type=int, default=1_000_000)
    parser.add_argument("--lost", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", choices=("cursor", "redelivery"))
    arguments = parser.parse_args()
    if arguments.only != "redelivery":
        holes = arguments.holes
        cursor_figures("every second entry", 2 * holes + FRONT, range(1, 2 * holes, 2))
        chance = random.Random(1)
        scattered = chance.sample(range(1, 4 * holes), 2 * holes)
        cursor_figures("a random half", 4 * holes + FRONT, scattered)
        cursor_figures("one in 100", 100 * holes + FRONT, chance.sample(range(1, 100 * holes), holes))
    if arguments.only != "cursor":
        asyncio.run(redelivery_figures(arguments.lost, arguments.seconds))


if __name__ == "__main__":
    main()
