"""The official consumers of a round: `python -m tests.crash.ack_process URL ROUND-PLAN-JSON RECORDS-FOLDER`.

Says `ready` when all have subscribed, then receives and acknowledges until it is killed. Each subscription
has a records file of its own; each ack is recorded before it is made.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pulsar

from tests.crash.plan import RoundPlan, SubscriptionPlan, leaves_unacked
from tests.crash.records import Delivery, Message, Position, Recorder

CUMULATIVE_EVERY = 50


def main() -> None:
    url, plan_text, folder = sys.argv[1:]
    plan = RoundPlan(*json.loads(plan_text))
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    work = []
    for each in plan.subscriptions():
        consumers = [subscribe(client, each) for _ in range(each.consumers)]
        if each.style in ("none", "receipts"):
            for consumer in consumers:
                consumer.close()
            continue
        recorder = Recorder(records_path(Path(folder), each))
        work += [(each, consumer, recorder) for consumer in consumers]
    for each, consumer, recorder in work:
        acker = _ack_cumulatively if each.style == "cumulative" else _ack_one_by_one
        threading.Thread(target=acker, args=(each, consumer, recorder), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()


def subscribe(client: pulsar.Client, plan: SubscriptionPlan) -> pulsar.Consumer:
    return client.subscribe(
        plan.topic,
        plan.name,
        consumer_type=getattr(pulsar.ConsumerType, plan.kind),
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=plan.style == "individual",
    )


def records_path(folder: Path, plan: SubscriptionPlan) -> Path:
    return folder / f"{plan.topic.rsplit('/', 1)[1]}-{plan.name}.records"


def delivery_of(message: pulsar.Message) -> Delivery:
    identity = message.message_id()
    return Delivery(Position(identity.ledger_id(), identity.entry_id()), Message.of(message.data()))


def _ack_one_by_one(plan: SubscriptionPlan, consumer: pulsar.Consumer, recorder: Recorder) -> None:
    """Leaves some without an ack: some messages, or some entries where an ack counts for the whole entry."""
    while True:
        message = consumer.receive()
        delivery = delivery_of(message)
        mark = delivery.message.number if plan.style == "individual" else delivery.position.entry
        if not leaves_unacked(mark):
            recorder.acking(delivery, time.monotonic_ns())
            consumer.acknowledge(message)


def _ack_cumulatively(_plan: SubscriptionPlan, consumer: pulsar.Consumer, recorder: Recorder) -> None:
    received = 0
    while True:
        message = consumer.receive()
        received += 1
        if received % CUMULATIVE_EVERY == 0:
            recorder.acking(delivery_of(message), time.monotonic_ns())
            consumer.acknowledge_cumulative(message)


if __name__ == "__main__":
    main()
