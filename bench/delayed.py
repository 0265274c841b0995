"""A million delayed messages: enqueue rate, memory, restart, and how exactly they are delivered.

`python -m bench.delayed [--messages 1000000] [--peers magnetar] [--exact 20000]`

One Shared subscription with a connected consumer, so that the broker holds each message back as it comes. Then:

    enqueue    messages per second with a delay of a day and more in no order, unbatched, 100 bytes, and the broker's CPU
               time for each; beside it without delay and without a consumer
    memory     growth of the broker's resident memory until the last message waits, and the index that it reports
    restart    kill -9 and start: seconds until the port opens, and until a consumer has subscribed and the statistics
               count every message again
    rejoin     the only consumer leaves and another one comes: seconds until the statistics count every message again
    error      `--exact` further messages at random times within ten seconds, in the midst of the others: the difference
               between arrival and delivery time, in ms

`--peers` takes what `python -m bench` takes; an address peer is not restarted, its memory is that of `pid`, and it must
have `delayedDeliveryTickTimeMillis=1000`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import threading
import time
import urllib.request
from dataclasses import dataclass
from multiprocessing.queues import Queue
from typing import Final

import pulsar

from bench.peers import Magnetar, Peer, peers_of
from bench.processes import cpu_s, memory

BODY: Final = bytes(100)
DAY_MS: Final = 86_400_000
EXACT_WITHIN_MS: Final = 10_000
"""Window of the delivery times of `--exact`."""
EXACT_AFTER_MS: Final = 4_000
"""Time until the first of them is due, for sending them all."""
TOPIC: Final = "persistent://public/default/delayed"


@dataclass(slots=True, kw_only=True)
class Figures:
    """One peer's row."""

    name: str
    """Name of the peer."""
    plain_per_s: float
    """Messages without a delay per second."""
    delayed_per_s: float
    """Messages with a delay per second."""
    cpu_us: float | None
    """The broker's CPU time per delayed message until all of them wait; None where the process is unknown."""
    memory_mib: float | None
    """Growth of resident memory; None where the process is unknown."""
    index_mib: float
    """The index, as the broker reports it."""
    restart_s: tuple[float, float] | None
    """From the kill to the open port, and to all messages counted again; None for a peer that is not restarted."""
    rejoin_s: float
    """From another consumer's subscription to all messages counted again."""
    errors_ms: list[float]
    """Arrival minus delivery time."""


def main(argv: list[str] | None = None) -> int:
    """Prints one line per peer."""
    parser = argparse.ArgumentParser("python -m bench.delayed", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--exact", type=int, default=20_000)
    parser.add_argument("--peers", default="magnetar")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    for peer in peers_of(arguments.peers):
        print(_line(_measure(peer, arguments.messages, arguments.exact, arguments.seed)), flush=True)
    return 0


def _measure(peer: Peer, messages: int, exact: int, seed: int) -> Figures:
    peer.start()
    pid = peer.pid
    try:
        _send(peer.url, f"{TOPIC}-plain", messages // 10, seed, delayed=False)
        plain = _send(peer.url, f"{TOPIC}-plain", messages // 5, seed, delayed=False)
        client = pulsar.Client(peer.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
        before = memory(pid).rss if pid is not None else 0.0
        cpu_before = cpu_s(pid) if pid is not None else 0.0
        delayed = _send(peer.url, TOPIC, messages, seed, delayed=True)
        _wait_for(peer, messages)
        cpu = (cpu_s(pid) - cpu_before) * 1e6 / messages if pid is not None else None
        after = memory(pid).rss if pid is not None else 0.0
        index = _number(_subscription(peer).get("delayedMessageIndexSizeInBytes")) / (1 << 20)
        client.close()
        restart = _restart(peer, messages) if isinstance(peer, Magnetar) else None
        rejoin, errors = _exactness(peer, messages, exact, seed)
    finally:
        peer.close()
    return Figures(
        name=peer.name,
        plain_per_s=plain,
        delayed_per_s=delayed,
        cpu_us=cpu,
        memory_mib=after - before if pid is not None else None,
        index_mib=index,
        restart_s=restart,
        rejoin_s=rejoin,
        errors_ms=errors,
    )


def _send(url: str, topic: str, count: int, seed: int, *, delayed: bool) -> float:
    """Returns messages per second, from the first send to the last receipt, of a client in a process of its own."""
    answer: Queue[float] = multiprocessing.Queue()
    process = multiprocessing.Process(target=_produce, args=(url, topic, count, seed, delayed, answer))
    process.start()
    seconds = answer.get()
    process.join()
    return count / seconds


def _produce(url: str, topic: str, count: int, seed: int, delayed: bool, answer: Queue[float]) -> None:
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    producer = client.create_producer(
        topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=2000
    )
    # Times in no order, over an hour: with one delay for all a broker may read no further than a limit.
    times = random.Random(seed)
    due = [times.randrange(3_600_000) for _ in range(count)] if delayed else []
    base_ms = time.time_ns() // 1_000_000 + DAY_MS
    begun = time.monotonic()
    for number in range(count):
        if delayed:
            producer.send_async(BODY, None, deliver_at=base_ms + due[number])
        else:
            producer.send_async(BODY, None)
    producer.flush()
    answer.put(time.monotonic() - begun)
    client.close()


def _restart(peer: Magnetar, messages: int) -> tuple[float, float]:
    assert peer.pid is not None
    begun = time.monotonic()
    peer.kill()
    peer.start()
    opened = time.monotonic() - begun
    client = pulsar.Client(peer.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    _wait_for(peer, messages)
    counted = time.monotonic() - begun
    client.close()
    return opened, counted


def _exactness(peer: Peer, messages: int, count: int, seed: int) -> tuple[float, list[float]]:
    client = pulsar.Client(
        peer.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"), message_listener_threads=2
    )
    errors: list[float] = []
    done = threading.Event()

    def arrived(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        now_ms = time.time_ns() / 1e6
        consumer.acknowledge(message)
        errors.append(now_ms - int(message.data()))
        if len(errors) == count:
            done.set()

    begun = time.monotonic()
    client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared, message_listener=arrived)
    _wait_for(peer, messages)
    rejoin = time.monotonic() - begun
    producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
    times = random.Random(seed)
    base_ms = time.time_ns() // 1_000_000 + EXACT_AFTER_MS
    for _ in range(count):
        due_ms = base_ms + times.randrange(EXACT_WITHIN_MS)
        producer.send_async(b"%d" % due_ms, None, deliver_at=due_ms)
    producer.flush()
    assert done.wait(60), f"{len(errors)} of {count} messages came"
    client.close()
    return rejoin, errors


def _wait_for(peer: Peer, messages: int) -> None:
    deadline = time.monotonic() + 600
    while (waiting := _number(_subscription(peer).get("msgDelayed"))) < messages:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{peer.name}: {waiting:.0f} of {messages} messages wait")
        time.sleep(0.05)


def _subscription(peer: Peer) -> dict[str, object]:
    assert peer.metrics_url is not None
    admin = peer.metrics_url.removesuffix("/").removesuffix("/metrics")
    path = TOPIC.replace("://", "/")
    with urllib.request.urlopen(f"{admin}/admin/v2/{path}/stats") as answer:
        stats = json.loads(answer.read())
    found: dict[str, object] = stats["subscriptions"].get("s", {})
    return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _line(figures: Figures) -> str:
    errors = sorted(figures.errors_ms)
    late = statistics.quantiles([abs(error) for error in errors], n=100)[98]
    memory_text = "-" if figures.memory_mib is None else f"{figures.memory_mib:.0f} MiB"
    restart = "-" if figures.restart_s is None else "{:.1f} s / {:.1f} s".format(*figures.restart_s)
    cpu = "-" if figures.cpu_us is None else f"{figures.cpu_us:.1f} µs"
    return (
        f"{figures.name}: {figures.delayed_per_s:,.0f} delayed/s, CPU {cpu} each ({figures.plain_per_s:,.0f} plain/s), "
        f"memory +{memory_text}, index {figures.index_mib:.1f} MiB, restart {restart}, "
        f"rejoin {figures.rejoin_s:.1f} s, "
        f"error min {errors[0]:+.0f} median {statistics.median(errors):+.0f} |p99| {late:.0f} "
        f"max {errors[-1]:+.0f} ms"
    )


if __name__ == "__main__":
    raise SystemExit(main())
