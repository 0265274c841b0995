"""`magnetar produce`: sends messages to a topic, with the flags and the last line of `pulsar-client produce`.

Each message is confirmed before the next is sent, so the exit code is 0 only when every message has its receipt.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, add_connection_flags, connected, fail, say
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    import pulsar


def main(argv: list[str]) -> int:
    """Runs `magnetar produce`. Returns 0, or 1 after one line on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        contents = contents_of(arguments.messages, arguments.files, arguments.separator)
        properties = properties_of(arguments.properties)
        count = _send_all(arguments, contents, properties)
    except CommandError as error:
        return fail("produce", error)
    say(f"{count} messages successfully produced")
    return 0


def contents_of(messages: list[str], files: list[str], separator: str) -> list[bytes]:
    """Returns the bodies in the order given, messages before files.

    Raises CommandError when there is none or a file cannot be read.
    """
    contents = [
        part.encode() for text in messages for part in (text.split(separator) if separator else [text])
    ]
    for path in (part for text in files for part in text.split(",")):
        try:
            contents.append(Path(path).read_bytes())
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
    if not contents:
        raise CommandError("please supply message content with either -m or -f")
    return contents


def properties_of(texts: list[str]) -> dict[str, str]:
    """Parses texts such as `k1=v1,k2=v2` into a mapping; a value may hold `=`. Raises CommandError."""
    properties = {}
    for part in (part for text in texts for part in text.split(",") if part):
        key, equals, value = part.partition("=")
        if not equals:
            raise CommandError(f"property {part!r} is not of the form key=value")
        properties[key] = value
    return properties


def pacer(rate: float) -> Callable[[], None]:
    """Returns a function that waits before each message so that `rate` messages a second go out; 0: never waits.

    A late sender catches up without waiting, so the mean rate holds.
    """
    if rate <= 0:
        return lambda: None
    step = 1 / rate
    due = time.monotonic()

    def wait() -> None:
        nonlocal due
        ahead = due - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        due += step

    return wait


def _send_all(arguments: argparse.Namespace, contents: list[bytes], properties: dict[str, str]) -> int:
    sent = 0
    with connected(arguments, lambda: f" after {sent} messages to {arguments.topic}") as client:
        producer = _producer(client, arguments)
        wait = pacer(arguments.rate)
        for _ in range(arguments.num_produce):
            for content in contents:
                wait()
                producer.send(
                    content,
                    properties=properties or None,
                    partition_key=arguments.key,
                    disable_replication=arguments.disable_replication,
                )
                sent += 1
    return sent


def _producer(client: pulsar.Client, arguments: argparse.Namespace) -> pulsar.Producer:
    return client.create_producer(
        arguments.topic,
        batching_enabled=not (arguments.disable_batching or arguments.chunking),
        # Each message waits for its receipt, so none joins its batch: waiting longer would only slow the command.
        batching_max_publish_delay_ms=1,
        chunking_enabled=arguments.chunking,
    )


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar produce", description="Produce messages to a specified topic.")
    add = parser.add_argument
    add("topic", help="topic name")
    add("-m", "--messages", action="append", default=[], help="message to send; may be repeated")
    add("-f", "--files", action="append", default=[], help="comma separated files to send, one message each")
    add("-s", "--separator", default=",", help="splits -m into messages; '' for none (default: a comma)")
    add("-n", "--num-produce", type=int, default=1, metavar="N", help="times to send the message(s)")
    add("-r", "--rate", type=float, default=0.0, help="messages per second, 0: as fast as possible")
    add("-k", "--key", default=None, help="partitioning key of each message")
    add("-p", "--properties", action="append", default=[], metavar="K=V,…", help="properties of each message")
    add("-db", "--disable-batching", action="store_true", help="send each message on its own")
    add("-c", "--chunking", action="store_true", help="split messages larger than the maximum size")
    add("-dr", "--disable-replication", action="store_true", help="no geo-replication of these messages")
    add_connection_flags(parser)
    return parser
