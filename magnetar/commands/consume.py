"""`magnetar consume`: prints the messages of a topic, with the flags and lines of `pulsar-client consume`.

A message is acknowledged after it was printed, so an interrupted command loses none. Exit code 0 when the
requested number came, or when the user stopped an endless command with Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, add_connection_flags, connected, fail, official_client, say
from magnetar.commands.produce import pacer
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    import pulsar

RECEIVE_TIMEOUT_MS = 500
"""Time after which an idle wait looks at the clock (`--end-timestamp`) and at signals."""
TYPES = {"Exclusive": "Exclusive", "Shared": "Shared", "Failover": "Failover", "Key_Shared": "KeyShared"}
"""Subscription types as Pulsar's tools name them, and as the client's `ConsumerType` does."""


def main(argv: list[str]) -> int:
    """Runs `magnetar consume`. Returns 0, or 1 after one line on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        count = _consume_all(arguments)
    except CommandError as error:
        return fail("consume", error)
    say(f"{count} messages successfully consumed")
    return 0


def text_of(message: pulsar.Message, *, as_hex: bool, with_metadata: bool) -> str:
    """Returns `publishTime:[…], eventTime:[…], key:[…], properties:[…], content:…`, the line of Pulsar's tool."""
    data: bytes = message.data()
    content = data.hex(" ") if as_hex else data.decode("utf-8", "replace")
    properties = ", ".join(f"{key}={value}" for key, value in message.properties().items())
    line = (
        f"publishTime:[{message.publish_timestamp()}], eventTime:[{message.event_timestamp()}], "
        f"key:[{message.partition_key() or 'null'}], properties:[{properties}], content:{content}"
    )
    if with_metadata:
        identity = message.message_id()
        line += (
            f", messageId:[{identity}], producer:[{message.producer_name()}], "
            f"redeliveryCount:[{message.redelivery_count()}]"
        )
    return line


def _consume_all(arguments: argparse.Namespace) -> int:
    errors = official_client()
    got = 0
    with connected(arguments, lambda: f" after {got} messages of {arguments.topic}") as client:
        try:
            receive, done_with = _source(client, arguments)
            wait = pacer(arguments.rate)
            end = arguments.end_timestamp
            while arguments.num_messages == 0 or got < arguments.num_messages:
                try:
                    message = receive(timeout_millis=RECEIVE_TIMEOUT_MS)
                except errors.Timeout:
                    if end and time.time() * 1000 > end:
                        break
                    continue
                if end and message.publish_timestamp() > end:
                    break
                wait()
                # Count before printing: a user who sees the message and interrupts finds it in the count.
                got += 1
                _show(message, arguments)
                done_with(message)
        except (KeyboardInterrupt, errors.Interrupted):
            # Two types, because Ctrl-C may arrive in Python or inside of a call into the client's C++ code.
            print(file=sys.stderr)
    return got


def _show(message: pulsar.Message, arguments: argparse.Namespace) -> None:
    if arguments.hide_content:
        return
    print("----- got message -----")
    print(text_of(message, as_hex=arguments.hex, with_metadata=arguments.print_metadata), flush=True)


def _source(
    client: pulsar.Client, arguments: argparse.Namespace
) -> tuple[Callable[..., pulsar.Message], Callable[[pulsar.Message], object]]:
    """Returns (receive, acknowledge). A reader serves a non-durable subscription and acknowledges nothing."""
    module = official_client()
    earliest = arguments.subscription_position == "Earliest"
    if arguments.subscription_mode == "NonDurable":
        if arguments.regex:
            raise CommandError("--regex needs -m Durable: the Python client reads one topic at a time")
        start = module.MessageId.earliest if earliest else module.MessageId.latest
        # The Python client has no non-durable subscriptions; a reader is one underneath.
        reader = client.create_reader(arguments.topic, start, receiver_queue_size=arguments.queue_size)
        if arguments.start_timestamp:
            reader.seek(arguments.start_timestamp)
        return reader.read_next, lambda message: None
    position = module.InitialPosition.Earliest if earliest else module.InitialPosition.Latest
    consumer = client.subscribe(
        _topics(arguments.topic, regex=arguments.regex),
        arguments.subscription_name,
        consumer_type=getattr(module.ConsumerType, TYPES[arguments.subscription_type]),
        initial_position=position,
        receiver_queue_size=arguments.queue_size,
        max_pending_chunked_message=arguments.max_chunked_msg,
        auto_ack_oldest_chunked_message_on_queue_full=arguments.auto_ack_chunk_q_full,
        replicate_subscription_state_enabled=arguments.replicated,
    )
    if arguments.start_timestamp:
        consumer.seek(arguments.start_timestamp)
    return consumer.receive, consumer.acknowledge


def _topics(topic: str, *, regex: bool) -> object:
    if not regex:
        return topic
    import re

    return re.compile(topic if "/" in topic else f"public/default/{topic}")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar consume", description="Consume messages from a specified topic.")
    add = parser.add_argument
    add("topic", help="topic name")
    add("-s", "--subscription-name", required=True, metavar="NAME", help="subscription name")
    add("-t", "--subscription-type", choices=tuple(TYPES), default="Exclusive")
    add("-p", "--subscription-position", choices=("Earliest", "Latest"), default="Latest")
    add("-m", "--subscription-mode", choices=("Durable", "NonDurable"), default="Durable")
    add("-n", "--num-messages", type=int, default=1, metavar="N", help="how many; 0: forever (default: 1)")
    add("-r", "--rate", type=float, default=0.0, help="messages per second, 0: as fast as possible")
    add("--hex", action="store_true", help="print contents in hex")
    add("--hide-content", action="store_true", help="do not print messages")
    add("--regex", action="store_true", help="the topic is a regular expression")
    add("-q", "--queue-size", type=int, default=1000, metavar="N", help="receiver queue size")
    add("-st", "--schema-type", choices=("bytes", "auto_consume"), default="bytes", help="both print bytes")
    add("-mp", "--print-metadata", action="store_true", help="also id, producer, redelivery count")
    add("-stp", "--start-timestamp", type=int, default=0, metavar="MS", help="from this publish time on")
    add("-etp", "--end-timestamp", type=int, default=0, metavar="MS", help="up to this publish time")
    add("-mc", "--max_chunked_msg", type=int, default=10, metavar="N", help="pending chunked messages")
    add("-ac", "--auto_ack_chunk_q_full", action="store_true", help="ack the oldest chunk when full")
    add("-rs", "--replicated", action="store_true", help="replicate the subscription state")
    add("-pm", "--pool-messages", nargs="?", default=None, help="without effect here")
    add_connection_flags(parser)
    return parser
