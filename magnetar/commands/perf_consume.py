"""`magnetar perf consume`: consumes with any number of subscriptions and reports throughput and age.

A message's latency is its age by wall clocks (now minus publish time, whole milliseconds), because its producer may be
any process. Each message is acknowledged on its own.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, connected, fail, official_client, say
from magnetar.commands.consume import TYPES
from magnetar.commands.perf_report import Reporter, Tally, add_common_flags, stop_on_signals, topics_of
from magnetar.commands.produce import pacer
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    import pulsar

_Listener = Callable[["pulsar.Consumer", "pulsar.Message"], None]


def main(argv: list[str]) -> int:
    """Runs the command. Returns 1 after an error, and for fewer messages than `-m` asked for."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except CommandError as error:
        return fail("perf consume", error)


def subscriptions_of(names: list[str], count: int) -> list[str]:
    """Returns the `count` given names, or `sub-0` … for one name. Raises CommandError for another number."""
    listed = [part for text in (names or ["sub"]) for part in text.split(",")]
    if len(listed) == count or (count == 1 and names):
        return listed
    if len(listed) == 1:
        return [f"{listed[0]}-{index}" for index in range(count)]
    raise CommandError("the size of the subscriptions list should be equal to --num-subscriptions")


def _run(arguments: argparse.Namespace) -> int:
    topics = topics_of(arguments.topics, arguments.num_topics)
    subscriptions = subscriptions_of(arguments.subscriptions, arguments.num_subscriptions)
    tally = Tally()
    with connected(arguments) as client, stop_on_signals() as stop:
        reporter = Reporter(
            tally,
            producing=False,
            interval_s=arguments.stats_interval_seconds,
            histogram_file=arguments.histogram_file,
        )
        listener = _listener(tally, arguments, stop)
        consumers = _consumers(client, topics, subscriptions, listener, arguments)
        say(f"Start receiving from {len(consumers)} consumers on {len(topics)} topics")
        if arguments.test_duration > 0:
            timer = threading.Timer(arguments.test_duration, stop.set)
            timer.daemon = True
            timer.start()
        reporter.run(stop)
        # Else the listeners would go on consuming while the aggregate is printed.
        for consumer in consumers:
            consumer.pause_message_listener()
        say("------------------- DONE -----------------------")
        reporter.aggregate()
    counts = tally.counts()
    return 1 if arguments.num_messages and counts.messages < arguments.num_messages else 0


def _listener(tally: Tally, arguments: argparse.Namespace, stop: threading.Event) -> _Listener:
    wait = pacer(arguments.rate)
    wanted = arguments.num_messages

    def received(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        # Messages that the client holds already still arrive after the end, and must not be counted.
        if stop.is_set():
            return
        wait()
        age_us = (time.time_ns() // 1_000_000 - message.publish_timestamp()) * 1000
        total = tally.succeeded(len(message.data()), age_us)
        consumer.acknowledge(message)
        if wanted and total >= wanted:
            stop.set()

    return received


def _consumers(
    client: pulsar.Client,
    topics: list[str],
    subscriptions: list[str],
    listener: _Listener,
    arguments: argparse.Namespace,
) -> list[pulsar.Consumer]:
    module = official_client()
    consumers = []
    for topic in topics:
        say(f"Adding {arguments.num_consumers} consumers per subscription on topic {topic}")
        for subscription in subscriptions:
            for _ in range(arguments.num_consumers):
                consumer = client.subscribe(
                    topic,
                    subscription,
                    consumer_type=getattr(module.ConsumerType, TYPES[arguments.subscription_type]),
                    message_listener=listener,
                    receiver_queue_size=arguments.receiver_queue_size,
                    max_total_receiver_queue_size_across_partitions=(
                        arguments.receiver_queue_size_across_partitions
                    ),
                    initial_position=getattr(module.InitialPosition, arguments.subscription_position),
                    replicate_subscription_state_enabled=arguments.replicated,
                    batch_index_ack_enabled=arguments.batch_index_ack,
                    max_pending_chunked_message=arguments.max_chunked_msg or 10,
                    auto_ack_oldest_chunked_message_on_queue_full=arguments.auto_ack_chunk_q_full,
                )
                consumers.append(consumer)
    return consumers


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar perf consume", description="Test pulsar consumer performance.")
    add_common_flags(parser)
    add = parser.add_argument
    add("-ss", "--subscriptions", action="append", default=[], metavar="NAME,…", help="default: sub")
    add("-st", "--subscription-type", choices=tuple(TYPES), default="Exclusive")
    add("-sp", "--subscription-position", choices=("Earliest", "Latest"), default="Latest")
    add("-n", "--num-consumers", type=int, default=1, metavar="N", help="consumers per subscription")
    add("-ns", "--num-subscriptions", type=int, default=1, metavar="N", help="subscriptions per topic")
    add("-q", "--receiver-queue-size", type=int, default=1000, metavar="N")
    add("-p", "--receiver-queue-size-across-partitions", type=int, default=50000, metavar="N")
    add("-r", "--rate", type=float, default=0, help="simulate a slow consumer (messages per second)")
    add("--batch-index-ack", action="store_true")
    add("-mc", "--max_chunked_msg", type=int, default=0, metavar="N")
    add("-ac", "--auto_ack_chunk_q_full", action="store_true")
    add("-rs", "--replicated", action="store_true")
    add("--acks-delay-millis", metavar="MS", help="without effect here")
    add("-pm", "--pool-messages", nargs="?", help="without effect here")
    return parser
