"""Messages of 1,000 topics among 100,000: their CPU beside that of 1,000 topics alone, and their delay while the others go.

`python -m bench.busy_among_many [--topics 100000] [--busy 1000] [--rounds 9] [--deletion-s 120]`, some minutes

The others are on disk when the broker starts, each with a subscription, and dormant. Each busy topic has a producer and a
consumer that acknowledges; neither has a connection, so that no client's CPU counts. Then the namespace of the others is
deleted, for so many seconds, while 500 messages a second go through the busy ones.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from bench import stored_topics
from bench.many_topics import embedded_broker
from broker.compose.broker_service import BrokerService
from broker.service.consumer import SubscribeOptions, SubscriptionType
from broker.service.producer import Producer
from broker.service.subscriptions.subscription import Subscription
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.topic_name import parse_topic_name
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort

BODY: Final = bytes(1024)
MESSAGES: Final = 20
"""Of each busy topic in a round."""
OTHERS: Final = "public/more-1"
RATE: Final = 500
PACED_S: Final = 20
WINDOW_S: Final = 65


class Port(FakeProducerPort):
    """Counts what is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def stored(self, sends: object, count: int, ledger_id: int, entry_id: int) -> None:
        """Counts them."""
        self.done += count

    def not_stored(self, sends: object, count: int, error: BrokerError) -> None:
        """Fails: everything is stored here."""
        raise AssertionError(error)


class Receiver(FakeConsumerPort):
    """A consumer's client that acknowledges in the next turn."""

    subscription: Subscription | None = None

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Acknowledges all of them soon."""
        asyncio.get_running_loop().call_soon(self._acknowledge, entries[-1])

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        """Acknowledges it soon, too."""
        self.deliver([entry])

    def _acknowledge(self, entry: Entry) -> None:
        if self.subscription is not None:
            self.subscription.acknowledge_through(entry.position)


async def producers(broker: BrokerService, count: int) -> list[Producer]:
    """Opens so many topics with a consumer and a producer each."""
    made = []
    for number in range(count):
        name = parse_topic_name(f"persistent://public/default/busy-{number}")
        topic = await broker.registry.get(name, create=True)
        receiver = Receiver()
        options = SubscribeOptions(
            subscription="subscription",
            kind=SubscriptionType.EXCLUSIVE,
            consumer_id=number,
            consumer_name="bench",
        )
        subscription, consumer = await topic.subscribe(receiver, options)
        assert isinstance(subscription, Subscription)
        receiver.subscription = subscription
        subscription.flow(consumer, 10**9)
        producer = Producer(topic, Port(), producer_id=number, name="bench")
        await topic.add_producer(producer)
        made.append(producer)
    return made


async def send(producer: Producer, sequence_id: int) -> None:
    """Publishes a message and waits for its receipt."""
    port = producer.port
    assert isinstance(port, Port)
    wanted = port.done + 1
    producer.publish(sequence_id, 0, 1, [BODY], len(BODY), chunk=False, delayed=False)
    while port.done < wanted:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)


async def cpu_per_message(busy: list[Producer], number: int) -> float:
    """Returns the CPU of a round in us for a message; rounds count from 0."""
    began = time.process_time()
    for sequence_id in range(number * MESSAGES, (number + 1) * MESSAGES):
        wanted = busy[-1].port.done + 1  # type: ignore[attr-defined]  # The ports of this bench.
        for producer in busy:
            producer.publish(sequence_id, 0, 1, [BODY], len(BODY), chunk=False, delayed=False)
        while busy[-1].port.done < wanted:  # type: ignore[attr-defined]  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    return (time.process_time() - began) / (len(busy) * MESSAGES) * 1e6


async def paced(busy: list[Producer], seconds: float, goes_on: Callable[[], bool]) -> list[float]:
    """Sends RATE messages a second for so long; returns the sorted times to their receipts, in ms."""
    times: list[float] = []
    began = time.perf_counter()
    sent = 0
    while time.perf_counter() - began < seconds and goes_on():
        due = began + sent / RATE
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        asked = max(due, time.perf_counter() - 0.001)
        await send(busy[sent % len(busy)], 10**6 + sent)
        times.append((time.perf_counter() - asked) * 1000)
        sent += 1
    return sorted(times)


async def serve(topics: int, busy: int, deletion_s: float, folder: Path, asked: Connection) -> None:
    """Runs a broker with the busy topics among others, or alone, and a round for each question; at last the deletion."""
    async with embedded_broker(folder) as broker:
        await broker.namespaces.create(OTHERS)
    await stored_topics.write_topics(topics - busy, folder, first=stored_topics.PER_NAMESPACE)
    async with embedded_broker(folder, stored_topics.ASLEEP) as broker:
        made = await producers(broker, busy)
        while broker.registry.dormant.filling:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.05)
        stored_topics.collect_as_a_process()
        asked.send(broker.registry.dormant.count)
        while (number := await asyncio.to_thread(asked.recv)) is not None:
            asked.send(await cpu_per_message(made, number))
        if topics > busy:
            await delete(broker, made, deletion_s)


async def delete(broker: BrokerService, busy: list[Producer], deletion_s: float) -> None:
    """Deletes the others, and prints the delay of the busy ones."""
    before = await paced(busy, PACED_S, lambda: True)
    count = broker.registry.dormant.count
    deleting = asyncio.create_task(broker.deletions.namespace(OTHERS, force=True))
    meanwhile = await paced(busy, deletion_s, lambda: not deleting.done())
    deleted = count - broker.registry.dormant.count
    print(f"deletion: {deleted:,} topics in {deletion_s:.0f} s, done: {deleting.done()}")
    p99 = [times[len(times) * 99 // 100] for times in (before, meanwhile)]
    print(f"p99 of a receipt: {p99[0]:.2f} ms before, {p99[1]:.2f} ms meanwhile: {p99[1] / p99[0]:.2f}")
    if not deleting.done():
        deleting.cancel()
    await asyncio.wait([deleting])


def run(topics: int, busy: int, deletion_s: float, asked: Connection) -> None:
    """A process with one broker."""
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(serve(topics, busy, deletion_s, Path(name), asked))


def main(topics: int, busy: int, rounds: int, deletion_s: float) -> None:
    """Measures both in turn, because other programs use the machine, and prints the ratio."""
    asked: list[Connection] = []
    processes = []
    for count in (busy, topics):
        ours, theirs = Pipe()
        processes.append(Process(target=run, args=(count, busy, deletion_s, theirs)))
        processes[-1].start()
        asked.append(ours)
    print(f"{asked[0].recv():,} and {asked[1].recv():,} dormant topics beside {busy:,} busy ones")
    ratios = []
    # In the first metrics window after the records are filled, their sums are made.
    time.sleep(WINDOW_S)
    for number in range(rounds + 1):
        found = []
        for one in asked:
            one.send(number)
            found.append(one.recv())
        # The first round makes what is made once.
        if number:
            ratios.append(found[1] / found[0])
            print(
                f"{found[0]:.1f} us of CPU for a message alone, {found[1]:.1f} among {topics:,}", flush=True
            )
    print(f"median of the ratios: {statistics.median(ratios):.2f}", flush=True)
    for one, process in zip(asked, processes, strict=True):
        one.send(None)
        process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Busy topics among many others.")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--busy", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--deletion-s", type=float, default=120)
    given = parser.parse_args()
    main(given.topics, given.busy, given.rounds, given.deletion_s)
