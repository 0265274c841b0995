"""kill -9 while entries that are pending at living consumers are delivered again (`unackedHoleRedeliveryPendingSeconds`).

In each round, on a topic of its own, an official producer sends, and consumers lose every tenth acknowledgement
(`losing_consumers.py`). The broker dies at a drawn copy. After the restart everything is read:

    confirmed messages               each is there once, in order
    acknowledged, with a receipt     does not come again; also the late ones, of a first copy after the second has come
    never acknowledged               comes again

Then the consumers live on and lose acknowledgements as before, until everything is acknowledged. After the last round and
one more kill no subscription has a backlog.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pulsar

from tests.crash.broker_process import SETTINGS, BrokerProcess
from tests.crash.counting_broker import counted
from tests.crash.crash_round import read_all
from tests.crash.losing_consumers import KINDS, LosingConsumers
from tests.crash.plan import SubscriptionPlan
from tests.crash.records import Confirmed, Delivery, Message
from tests.crash.verdict import AckVerdict, ProduceVerdict, demand_receipts, judge_acks, judge_producer

KEEPER: Final = "keeper"
"""The subscription that acknowledges nothing."""
PRODUCER: Final = "p"
KEYS: Final = 8
SIZE: Final = 200
BURST: Final = 8
"""Messages that are sent at once, so that the broker reads several in one piece."""
RATE: Final = 500.0
"""Messages per second."""
COPIES: Final = (20, 400)
"""The broker dies at a copy between these."""
TIMEOUT_S: Final = 300.0


class Outcome(NamedTuple):
    """The counts of some rounds, and what is wrong in them."""

    produced: list[ProduceVerdict]
    acked: list[AckVerdict]
    copies: int
    """Entries that came again at living consumers before the kill."""
    late: int
    """Answered acknowledgements of a first copy after another copy had come, before the kill."""
    copies_after: int
    """Entries that came again at living consumers after the restart."""
    findings: list[str]

    def text(self) -> str:
        """Returns the counts."""
        return (
            f"{sum(each.confirmed for each in self.produced)} confirmed, "
            f"{sum(each.lost for each in self.produced)} lost, {self.copies} redelivered, "
            f"{sum(each.final for each in self.acked)} acks answered, {self.late} of them late, "
            f"{sum(each.again for each in self.acked)} of them again, "
            f"{sum(each.unacked for each in self.acked)} unacked, "
            f"{sum(each.missing for each in self.acked)} of them missing, "
            f"{self.copies_after} redelivered after the restart"
        )


def main(rounds: int, seed: int, folder: Path) -> bool:
    """All rounds on one data folder, a line for each. Returns True when nothing is wrong."""
    lot = random.Random(seed)
    settings = (*SETTINGS, "unackedHoleRedeliveryPendingSeconds=1")
    broker = BrokerProcess(folder, settings, module="tests.crash.counting_broker")
    done: list[Outcome] = []
    topics = [f"persistent://public/default/holes-{number}" for number in range(1, rounds + 1)]
    try:
        broker.start()
        for number, topic in enumerate(topics, 1):
            kill_at = lot.randrange(*COPIES)
            done.append(HolesRound(topic, kill_at, broker).run())
            print(f"round {number:2d}  killed at copy {kill_at}: {done[-1].text()}", flush=True)
        broker.kill()
        broker.start()
        findings = [text for topic in topics for text in backlogs(broker, topic)]
        code = broker.stop()
    finally:
        broker.close()
    findings += [text for each in done for text in each.findings]
    runs = counted(broker.runs)
    if code != 0:
        findings.append(f"SIGTERM ended with exit code {code}")
    if not runs:
        findings.append("no run had more than one SEND")
    for text in findings:
        print(f"FAILED: {text}")
    print(f"{rounds} rounds, {_summary(done).text()}, {runs} runs of several SENDs")
    return not findings


def _summary(done: list[Outcome]) -> Outcome:
    return Outcome(
        [one for each in done for one in each.produced],
        [one for each in done for one in each.acked],
        sum(each.copies for each in done),
        sum(each.late for each in done),
        sum(each.copies_after for each in done),
        [],
    )


def backlogs(broker: BrokerProcess, topic: str) -> list[str]:
    """Names the subscriptions with consumers that have a backlog."""
    asked = {kind: _why(broker, topic, kind) for kind in KINDS}
    return [
        f"{kind} on {topic} has a backlog of {told['backlog']}: {told['conclusion']}"
        for kind, told in asked.items()
        if told["backlog"]
    ]


def _why(broker: BrokerProcess, topic: str, subscription: str) -> dict[str, object]:
    path = f"magnetar/subscriptions/why/{topic.replace('://', '/')}/{subscription}"
    with urllib.request.urlopen(f"{broker.admin_url}/admin/v2/{path}", timeout=TIMEOUT_S) as answer:
        told: dict[str, object] = json.load(answer)
    return told


class HolesRound:
    """Traffic, the kill at a copy, the restart, the judgement, and the rest of the consumers' life."""

    def __init__(self, topic: str, kill_at: int, broker: BrokerProcess) -> None:
        """`broker` runs before and after."""
        self._topic = topic
        self._kill_at = kill_at
        self._broker = broker
        self._consumers = LosingConsumers(topic)
        self._client = pulsar.Client(
            broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )

    def run(self) -> Outcome:
        """Plays the round. Raises RuntimeError where something does not come that must."""
        try:
            self._client.subscribe(self._topic, KEEPER).close()
            with _producing(self._client, self._topic) as confirmed:
                asyncio.run(self._consumers.live(self._broker.url, self._dies))
                kill_ns = time.monotonic_ns()
                self._broker.start()
            return self._judge(confirmed, kill_ns)
        finally:
            self._client.close()

    def _dies(self) -> bool:
        """Kills the broker at the copy of the plan, once a late acknowledgement is answered."""
        due = self._consumers.copies >= self._kill_at and self._consumers.late > 0
        if due:
            self._broker.kill()
        return due

    def _judge(self, confirmed: list[Confirmed], kill_ns: int) -> Outcome:
        """Reads everything, and lets the consumers acknowledge the rest."""
        consumers = self._consumers
        log = self._read(KEEPER, {Message(each.producer, each.number) for each in confirmed})
        produced = judge_producer(PRODUCER, confirmed, log, kill_ns)
        acked, back = [], dict[str, list[Delivery]]()
        for kind in KINDS:
            demand = demand_receipts(consumers.answered[kind], consumers.tried[kind], log)
            back[kind] = self._read(kind, demand.unacked)
            acked.append(judge_acks(f"{self._topic}/{kind}", demand, {*back[kind]}))
        findings = produced.findings + [text for each in acked for text in each.findings]
        copies, late = consumers.copies, consumers.late
        left = {kind: {each.position for each in back[kind]} for kind in KINDS}

        def all_acked() -> bool:
            return all(left[kind] <= consumers.answered[kind] for kind in KINDS)

        last = {kind: max(left[kind]) for kind in KINDS}
        asyncio.run(consumers.live(self._broker.url, all_acked, last))
        findings += backlogs(self._broker, self._topic)
        copies_after = consumers.copies - copies
        for kind in KINDS:
            if not _why(self._broker, self._topic, kind)["redeliveredFromConsumers"]:
                findings.append(f"{kind} on {self._topic} redelivered nothing after the restart")
        return Outcome([produced], acked, copies, late, copies_after, findings)

    def _read(self, subscription: str, wanted: set[Message] | set[Delivery]) -> list[Delivery]:
        """Reads a subscription with an Exclusive consumer, at which nothing comes again."""
        plan = SubscriptionPlan(subscription, self._topic, "none", "Exclusive", 1)
        return read_all(self._client, plan, wanted)


@contextmanager
def _producing(client: pulsar.Client, topic: str) -> Iterator[list[Confirmed]]:
    """Sends during the block, yields what is confirmed so far, and waits for all receipts at the end."""
    producer = client.create_producer(
        topic,
        producer_name=PRODUCER,
        send_timeout_millis=0,
        block_if_queue_full=True,
        batching_enabled=False,
    )
    confirmed: list[Confirmed] = []
    stop = threading.Event()

    def receipt(number: int, result: pulsar.Result, _id: object) -> None:
        if result == pulsar.Result.Ok:
            confirmed.append(Confirmed(PRODUCER, number, time.monotonic_ns()))

    def send() -> None:
        number = 0
        while not stop.wait(BURST / RATE):
            for _ in range(BURST):
                body = Message(PRODUCER, number).body(SIZE)
                producer.send_async(body, partial(receipt, number), partition_key=f"k{number % KEYS}")
                number += 1

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    yield confirmed
    stop.set()
    sender.join()
    producer.flush()
