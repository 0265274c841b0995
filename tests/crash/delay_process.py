"""Delayed messages of a round: `python -m tests.crash.delay_process URL TOPIC RATE RECORDS`.

One producer with random delays and one Shared consumer, in one process. Says `ready` when both are connected; at `stop`
on standard input sends no more, waits for every receipt and says `done`. Every arrival is recorded with its time, and
acknowledged, but for those that `leaves_unacked` names.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pulsar

from tests.crash.plan import leaves_unacked
from tests.crash.records import Message, Recorder

SIZE = 100
PRODUCER = "later"
SUBSCRIPTION = "due"
DELAY_MS_MAX = 9000
"""Longer than a round's traffic, so that many messages wait across the kill."""


def main() -> None:
    url, topic, rate, records = sys.argv[1:]
    recorder = Recorder(Path(records))
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    consumer = subscribe(client, topic)
    producer = client.create_producer(
        topic, producer_name=PRODUCER, send_timeout_millis=0, block_if_queue_full=True, batching_enabled=False
    )
    threading.Thread(target=_consume, args=(consumer, recorder), daemon=True).start()
    stop = threading.Event()
    threading.Thread(target=_wait_for_stop, args=(stop,), daemon=True).start()
    print("ready", flush=True)
    _produce(producer, recorder, float(rate), stop)
    print("done", flush=True)
    sys.stdin.readline()


def subscribe(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def message_of(body: bytes) -> tuple[int, int]:
    """(number, delivery time in ms)"""
    number, due_ms = Message.of(body).number, body.split(b"|")[1]
    return number, int(due_ms)


def _produce(producer: pulsar.Producer, recorder: Recorder, rate: float, stop: threading.Event) -> None:
    lot = random.Random(rate)
    number, next_s = 0, time.monotonic()
    while not stop.is_set():
        message = Message(PRODUCER, number)
        due_ms = wall_ms() + lot.randrange(DELAY_MS_MAX)
        body = message.body(0) + b"|%d|" % due_ms
        producer.send_async(body.ljust(SIZE, b"."), partial(_receipt, recorder, message), deliver_at=due_ms)
        number += 1
        next_s += 1 / rate
        time.sleep(max(0.0, next_s - time.monotonic()))
    producer.flush()


def _consume(consumer: pulsar.Consumer, recorder: Recorder) -> None:
    while True:
        message = consumer.receive()
        at_ms = wall_ms()
        number, due_ms = message_of(message.data())
        recorder.came(number, due_ms, at_ms)
        if not leaves_unacked(number):
            consumer.acknowledge(message)


def _receipt(recorder: Recorder, message: Message, result: pulsar.Result, _id: object) -> None:
    if result == pulsar.Result.Ok:
        recorder.confirmed(message, time.monotonic_ns())


def _wait_for_stop(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


if __name__ == "__main__":
    main()
