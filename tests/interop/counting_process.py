"""The official Python client as a program of `counting`: `python -m tests.interop.counting_process URL PREFIX RATE`."""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from typing import Final

import pulsar

from tests.interop.counting import TOPICS

KEYS: Final = 20


def main() -> None:
    """Sends and receives until standard input ends."""
    url, prefix, rate = sys.argv[1:]
    # The client logs to standard output otherwise.
    client = pulsar.Client(
        url,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/stderr"),
    )
    for topic in TOPICS:
        for subscription, kind, consumers in (
            ("alone", pulsar.ConsumerType.Exclusive, 1),
            ("keys", pulsar.ConsumerType.KeyShared, 2),
        ):
            for _ in range(consumers):
                consumer = client.subscribe(prefix + topic, subscription, consumer_type=kind)
                _start(_receive, consumer, subscription, topic)
    producers = [(topic, _producer(client, prefix, topic)) for topic in TOPICS]
    say("ready")
    stopping = threading.Event()
    senders = [
        _start(_send, producer, topic, float(rate) / len(TOPICS), stopping) for topic, producer in producers
    ]
    sys.stdin.readline()
    stopping.set()
    for sender in senders:
        sender.join()
    say("stopped")
    sys.stdin.read()
    # Receiving threads would keep the process.
    os._exit(0)


def say(line: str) -> None:
    """Prints a line in one write, which lines of other threads cannot divide."""
    os.write(1, f"{line}\n".encode())


def position(of: pulsar.MessageId) -> str:
    """Returns the position of a message as the lines have it."""
    return f"{of.ledger_id()}:{of.entry_id()}:{max(0, of.batch_index())}"


def _start(target: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def _producer(client: pulsar.Client, prefix: str, topic: str) -> pulsar.Producer:
    return client.create_producer(
        prefix + topic,
        send_timeout_millis=0,
        block_if_queue_full=True,
        batching_enabled=topic == "batched",
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=100,
    )


def _send(producer: pulsar.Producer, topic: str, rate: float, stopping: threading.Event) -> None:
    number, due_s = 0, time.monotonic()
    while not stopping.is_set():
        name = f"{topic} {number % KEYS} {number}"
        say(f"sent {name}")
        producer.send_async(b"%d" % number, partial(_receipt, name), partition_key=str(number % KEYS))
        number += 1
        due_s += 1 / rate
        stopping.wait(max(0.0, due_s - time.monotonic()))


def _receipt(name: str, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
    say(
        f"confirmed {name} {position(message_id)}"
        if result == pulsar.Result.Ok
        else f"failed {name} {result}"
    )


def _receive(consumer: pulsar.Consumer, subscription: str, topic: str) -> None:
    try:
        while True:
            message = consumer.receive()
            number = message.data().decode()
            say(
                f"received {subscription} {topic} {message.partition_key()} {number} {position(message.message_id())}"
            )
            consumer.acknowledge(message)
    except pulsar.PulsarException as error:
        say(f"trouble {subscription} {topic} {error}")


if __name__ == "__main__":
    main()
