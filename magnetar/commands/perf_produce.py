"""`magnetar perf produce`: publishes at a rate and reports throughput and receipt latency.

A message's latency lasts from the call of the client's `send_async` to the receipt. Messages of the warm-up count as
throughput and not as latency: connections and batches are not yet as they will be.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, connected, fail, official_client, say
from magnetar.commands.perf_report import Reporter, Tally, add_common_flags, stop_on_signals, topics_of
from magnetar.commands.produce import pacer
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    import pulsar

_OUTSTANDING_DEFAULT = 1000
_COMPRESSIONS = {"NONE": "NONE", "LZ4": "LZ4", "ZLIB": "ZLib", "ZSTD": "ZSTD", "SNAPPY": "SNAPPY"}
_ACCESS_MODES = ("Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive")


def main(argv: list[str]) -> int:
    """Runs the command. Returns 1 after an error, and when a message was not confirmed."""
    arguments = _parser().parse_args(argv)
    try:
        failures = _run(arguments)
    except CommandError as error:
        return fail("perf produce", error)
    return 1 if failures else 0


def payloads_of(size: int, path: Path | None, delimiter: str) -> list[bytes]:
    """Returns one random payload of `size` bytes, or the parts of a file. Raises CommandError."""
    if path is None:
        return [os.urandom(size)]
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    parts = [part.encode() for part in text.split(delimiter.replace("\\n", "\n")) if part]
    if not parts:
        raise CommandError(f"{path} holds no payload; put at least one between delimiters")
    return parts


def _run(arguments: argparse.Namespace) -> int:
    payloads = payloads_of(arguments.size, arguments.payload_file, arguments.payload_delimiter)
    topics = topics_of(arguments.topics, arguments.num_topics, arguments.separator)
    tally = Tally()
    with connected(arguments) as client:
        producers = _producers(client, topics, arguments)
        say(f"Created {len(producers)} producers")
        with stop_on_signals() as stop:
            reporter = Reporter(
                tally,
                producing=True,
                interval_s=arguments.stats_interval_seconds,
                histogram_file=arguments.histogram_file,
            )
            # A daemon: after an error nothing sets `stop`, and the process must still end.
            printer = threading.Thread(target=reporter.run, args=(stop,), daemon=True)
            printer.start()
            _publish(producers, payloads, arguments, tally, stop)
            # Receipts that are still out belong to the measurement.
            for producer in producers:
                producer.flush()
            stop.set()
            printer.join()
            reporter.aggregate()
    return tally.counts().failures


def _publish(
    producers: list[pulsar.Producer],
    payloads: list[bytes],
    arguments: argparse.Namespace,
    tally: Tally,
    stop: threading.Event,
) -> None:
    """Publishes round robin over the producers until the count, the time, a fatal failure, or a signal."""
    wait = pacer(arguments.rate)
    started = time.monotonic_ns()
    warm_at = started + int(arguments.warmup_time * 1e9)
    ends_at = started + int(arguments.test_duration * 1e9) if arguments.test_duration > 0 else None
    key = _keys(arguments.message_key_generation_mode)
    sent = 0
    while not stop.is_set():
        if arguments.num_messages and sent >= arguments.num_messages:
            say(f"------------- DONE (reached the maximum number: {sent} of production) --------------")
            return
        # Before each message and not by a timer: at low rates the end comes up to one message late.
        if ends_at and time.monotonic_ns() >= ends_at:
            seconds = f"[{arguments.test_duration:g} seconds]"
            say(f"------------- DONE (reached the maximum duration: {seconds} of production) --------------")
            return
        wait()
        # Without a choice among one: it would cost a microsecond per message.
        payload = payloads[0] if len(payloads) == 1 else random.choice(payloads)
        on_failure = stop if arguments.exit_on_failure else None
        done = partial(_receipt, tally, time.monotonic_ns(), warm_at, len(payload), on_failure)
        producers[sent % len(producers)].send_async(
            payload, done, partition_key=key(sent), deliver_after=arguments.deliver_after
        )
        sent += 1


def _receipt(
    tally: Tally,
    sent_ns: int,
    warm_at: int,
    size: int,
    on_failure: threading.Event | None,
    result: object,
    _message_id: object,
) -> None:
    if getattr(result, "name", "") == "Ok":
        now = time.monotonic_ns()
        tally.succeeded(size, (now - sent_ns) // 1000 if now >= warm_at else None)
        return
    tally.failed()
    if on_failure:
        on_failure.set()


def _keys(mode: str | None) -> Callable[[int], str | None]:
    if mode == "autoIncrement":
        return str
    if mode == "random":
        return lambda _: str(random.getrandbits(31))
    return lambda _: None


def _producers(
    client: pulsar.Client, topics: list[str], arguments: argparse.Namespace
) -> list[pulsar.Producer]:
    module = official_client()
    outstanding = arguments.max_outstanding or _OUTSTANDING_DEFAULT
    producers = []
    for topic in topics:
        say(f"Adding {arguments.num_producers} publishers on topic {topic}")
        for _ in range(arguments.num_producers):
            producer = client.create_producer(
                topic,
                producer_name=arguments.producer_name,
                send_timeout_millis=int(arguments.send_timeout),
                compression_type=getattr(module.CompressionType, _COMPRESSIONS[arguments.compression]),
                max_pending_messages=outstanding,
                max_pending_messages_across_partitions=arguments.max_outstanding_across_partitions or 50000,
                block_if_queue_full=True,
                batching_enabled=not (arguments.disable_batching or arguments.chunking),
                batching_max_messages=arguments.batch_max_messages,
                batching_max_allowed_size_in_bytes=arguments.batch_max_bytes,
                # The client counts in whole milliseconds; 1 is the least that makes batches.
                batching_max_publish_delay_ms=max(1, round(arguments.batch_time_window)),
                chunking_enabled=arguments.chunking,
                access_mode=getattr(module.ProducerAccessMode, arguments.access_mode),
            )
            producers.append(producer)
    return producers


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar perf produce", description="Test pulsar producer performance.")
    add_common_flags(parser)
    add = parser.add_argument
    add("-r", "--rate", type=float, default=100, help="messages per second across topics, 0: no limit")
    add("-s", "--size", type=int, default=1024, metavar="BYTES", help="message size (default: 1024)")
    add("-n", "--num-producers", type=int, default=1, metavar="N", help="producers per topic")
    add("-o", "--max-outstanding", type=int, default=0, metavar="N", help="unconfirmed messages (0: 1000)")
    add("-p", "--max-outstanding-across-partitions", type=int, default=0, metavar="N")
    add("-b", "--batch-time-window", type=float, default=1.0, metavar="MS", help="default: 1")
    add("-bm", "--batch-max-messages", type=int, default=1000, metavar="N")
    add("-bb", "--batch-max-bytes", type=int, default=4 * 1024 * 1024, metavar="BYTES")
    add("-db", "--disable-batching", action="store_true")
    add("-z", "--compression", choices=tuple(_COMPRESSIONS), default="NONE")
    add("-ch", "--chunking", action="store_true")
    add("-am", "--access-mode", choices=_ACCESS_MODES, default="Shared")
    add("-mk", "--message-key-generation-mode", choices=("autoIncrement", "random"), default=None)
    add("-d", "--delay", dest="deliver_after", type=_delay, default=None, metavar="S", help="deliver later")
    add("-f", "--payload-file", type=Path, default=None, metavar="FILE", help="UTF-8 file of payloads")
    add("-e", "--payload-delimiter", default="\\n", metavar="TEXT", help="splits that file")
    add("-pn", "--producer-name", default=None, metavar="NAME")
    add("-ef", "--exit-on-failure", action="store_true", help="stop at the first failed publish")
    add("--send-timeout", type=float, default=0, metavar="MS", help="0: none")
    add("--separator", default="-", metavar="TEXT", help="between topic and number")
    add("--warmup-time", type=float, default=1.0, metavar="S", help="latencies do not count (default: 1)")
    return parser


def _delay(text: str) -> object:
    from datetime import timedelta

    seconds = float(text)
    return timedelta(seconds=seconds) if seconds > 0 else None
