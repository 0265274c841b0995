"""`python -m magnetar.commands.demo`: runs a producer and two subscriptions, and prints what the cache did.

Uses the broker at `--url` when one listens there, else starts one of its own on free ports and stops it again.
It uses only the official client and `/metrics`; every printed number was counted or scraped.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from magnetar.clients.client import ClientArguments, CommandError, connect, fail, official_client
from magnetar.commands.latencies import Latencies
from magnetar.kit.broker import Broker
from magnetar.kit.errors import KitError

if TYPE_CHECKING:
    import pulsar

IDLE_TIMEOUT_S = 10.0
"""Limit on the wait for the consumers after the last receipt."""
WORKERS = 3
"""Consumers of the Shared subscription."""
REFUSED_EVERY = 200
"""A worker refuses each message with such a number once, to show a redelivery."""
NEGATIVE_ACK_DELAY_MS = 200
"""Delay of the redelivery after a refusal."""
SHOWN = (
    ("inserted", "pulsar_ml_cache_x_insertions_total"),
    ("hits", "pulsar_ml_cache_x_hits_total"),
    ("misses", "pulsar_ml_cache_x_misses_total"),
    ("requeued", "pulsar_ml_cache_x_requeues_total"),
    ("evicted", "pulsar_ml_cache_x_evicted_total"),
)
"""Counters of the whole broker: word in the output, name of the family."""
TOPIC_COUNTERS = ("pulsar_ml_cache_x_topic_hits_total", "pulsar_ml_cache_x_topic_misses_total")
"""Counters of single topics, printed for the demo's topic alone."""


class DemoBroker(NamedTuple):
    """The broker that the demo uses."""

    pulsar: str
    """URL for clients."""
    admin: str
    """URL in front of `/metrics`."""
    own: bool
    """True for a broker that the demo started and will stop."""


class Consumed:
    """The messages of one consumer. Its own thread writes, other threads read only lengths until it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Shown in the output."""
        self.numbers: list[int] = []
        """Numbers of the acknowledged messages, in the order of their delivery."""
        self.redelivered = 0
        """Acknowledged messages that were not at their first delivery."""


def main(argv: list[str] | None = None) -> int:
    """Runs the demo. Returns 0, or 1 after one line on stderr."""
    parser = argparse.ArgumentParser("python -m magnetar.commands.demo", description="Show a broker at work.")
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650", help="broker to use when one listens")
    parser.add_argument(
        "--admin-url", default="http://127.0.0.1:8080", help="address in front of its /metrics"
    )
    parser.add_argument("-n", "--messages", type=int, default=2000)
    parser.add_argument("-r", "--rate", type=float, default=1000.0, help="messages per second")
    arguments = parser.parse_args(argv)
    try:
        official_client()
        with _broker(arguments.url, arguments.admin_url) as addresses:
            _show(addresses, arguments.messages, arguments.rate)
    except CommandError as error:
        return fail("demo", error)
    except KitError as error:
        return fail("demo", CommandError(" | ".join(str(error).splitlines())))
    return 0


def _show(addresses: DemoBroker, count: int, rate: float) -> None:
    topic = f"persistent://public/default/demo-{time.time_ns() // 1_000_000}"
    print(f"broker    {addresses.pulsar}{' (started for this demo)' if addresses.own else ''}")
    print(f"topic     {topic}")
    before = scrape(addresses.admin)
    client = connect(ClientArguments(addresses.pulsar))
    try:
        ledger, workers, receipts = _work(client, topic, count, rate)
    finally:
        client.close()
    print(f"producer  {count} messages of 1 KiB, {rate:g} a second")
    print(f"          receipt after {_ms(receipts, 50)} (median), {_ms(receipts, 99)} (99 %)")
    in_order = ledger.numbers == list(range(count))
    order = "in order" if in_order else "NOT in order"
    print(f"ledger    Failover, 1 consumer: {len(ledger.numbers)} messages, {order}")
    shares = ", ".join(f"{worker.name} {len(worker.numbers)}" for worker in workers)
    distinct = len({number for worker in workers for number in worker.numbers})
    redelivered = sum(worker.redelivered for worker in workers)
    print(f"workers   Shared, {WORKERS} consumers: {distinct} messages, {shares}")
    print(f"          {redelivered} refused once with negative_acknowledge, delivered again")
    _show_cache(before, scrape(addresses.admin), topic, f"{addresses.admin}/metrics")


def _show_cache(before: Sequence[Sample], after: Sequence[Sample], topic: str, page: str) -> None:
    print("\nWhat the entry cache did meanwhile (from /metrics):")
    if not after:
        print(f"  {page} does not answer; name the broker's admin address with --admin-url")
        return
    if not total(after, "pulsar_ml_cache_x_insertions_total"):
        print("  this broker does not count its cache as Magnetar does")
        return
    for word, name in SHOWN:
        print(
            f"  {word:<10}{total(after, name) - total(before, name):8.0f} entries{_parts(before, after, name)}"
        )
    used, most = total(after, "pulsar_ml_cache_x_used_bytes"), total(after, "pulsar_ml_cache_x_max_bytes")
    entries = total(after, "pulsar_ml_cache_x_entries")
    print(f"  {'in it now':<10}{entries:8.0f} entries, {used / 1024:.0f} KiB of {most / 2**20:.0f} MiB")
    print("\nMisses are reads from the bookie: subscriptions that keep up with the producer cause none.")
    print(f"\nFrom {page}:")
    for name in (*(name for _, name in SHOWN), *TOPIC_COUNTERS):
        for sample in after:
            if sample.name == name and (name not in TOPIC_COUNTERS or sample.labels["topic"] == topic):
                labels = ",".join(f'{label}="{value}"' for label, value in sample.labels.items())
                print(f"  {name}{{{labels}}} {sample.value:.0f}")


def _work(
    client: pulsar.Client, topic: str, count: int, rate: float
) -> tuple[Consumed, list[Consumed], Latencies]:
    """Subscribes, produces, and waits until both subscriptions have all messages or IDLE_TIMEOUT_S are over."""
    module = official_client()
    ledger = Consumed("ledger")
    workers = [Consumed(f"worker-{index + 1}") for index in range(WORKERS)]
    failover = client.subscribe(topic, "ledger", consumer_type=module.ConsumerType.Failover)
    shared = [
        client.subscribe(
            topic,
            "workers",
            consumer_type=module.ConsumerType.Shared,
            consumer_name=worker.name,
            receiver_queue_size=100,
            negative_ack_redelivery_delay_ms=NEGATIVE_ACK_DELAY_MS,
        )
        for worker in workers
    ]
    done = threading.Event()
    # A thread for each consumer, because `receive` blocks.
    threads = [threading.Thread(target=_consume, args=(failover, ledger, done, False))]
    threads += [
        threading.Thread(target=_consume, args=(consumer, worker, done, True))
        for consumer, worker in zip(shared, workers, strict=True)
    ]
    for thread in threads:
        thread.start()
    receipts = _produce(client, topic, count, rate)
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while time.monotonic() < deadline:
        if len(ledger.numbers) >= count and sum(len(worker.numbers) for worker in workers) >= count:
            break
        time.sleep(0.05)
    # Also after the deadline: the output then shows which messages are missing.
    done.set()
    for thread in threads:
        thread.join()
    return ledger, workers, receipts


def _produce(client: pulsar.Client, topic: str, count: int, rate: float) -> Latencies:
    from magnetar.commands.produce import pacer

    receipts = Latencies()
    producer = client.create_producer(topic, block_if_queue_full=True)
    wait = pacer(rate)
    for number in range(count):
        wait()
        body = f"{number}:".encode().ljust(1024, b".")
        producer.send_async(body, partial(_receipt, receipts, time.monotonic_ns()))
    producer.flush()
    producer.close()
    return receipts


def _receipt(receipts: Latencies, sent_ns: int, _result: object, _id: object) -> None:
    receipts.record((time.monotonic_ns() - sent_ns) // 1000)


def _consume(consumer: pulsar.Consumer, consumed: Consumed, done: threading.Event, refuses: bool) -> None:
    """Consumes until `done`; with `refuses`, refuses every REFUSED_EVERY-th message at its first delivery."""
    module = official_client()
    while not done.is_set():
        try:
            message = consumer.receive(100)
        except module.Timeout:
            continue
        number = int(message.data().split(b":", 1)[0])
        again = message.redelivery_count() > 0
        if refuses and not again and number % REFUSED_EVERY == REFUSED_EVERY - 1:
            consumer.negative_acknowledge(message)
            continue
        consumed.redelivered += again
        consumed.numbers.append(number)
        consumer.acknowledge(message)


@contextmanager
def _broker(url: str, admin_url: str) -> Iterator[DemoBroker]:
    """Yields the broker that listens at `url`, or starts one for the time of the block."""
    if _listens(url):
        yield DemoBroker(url, admin_url, own=False)
        return
    # On a disk, as the broker of a user, and not in memory, as the kit's usual one.
    with tempfile.TemporaryDirectory(prefix="magnetar-demo-") as folder, Broker(f"{folder}/data") as broker:
        yield DemoBroker(broker.pulsar_url, broker.admin_url, own=True)


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6650), 1).close()
    except OSError:
        return False
    return True


def scrape(admin_url: str) -> list[Sample]:
    """Returns every sample of `/metrics`; none when the page does not answer."""
    try:
        with urllib.request.urlopen(f"{admin_url.rstrip('/')}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(samples: Sequence[Sample], name: str, labels: Mapping[str, str] = MappingProxyType({})) -> float:
    """Returns the sum of a family's samples that carry all the labels."""
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def _parts(before: Sequence[Sample], after: Sequence[Sample], name: str) -> str:
    """Returns the family's growth by its label `reason` or `cause`; an empty text without such a label."""
    parts = []
    for sample in after:
        word = sample.labels.get("reason") or sample.labels.get("cause")
        grown = sample.value - total(before, name, sample.labels)
        if sample.name == name and word and grown > 0:
            parts.append(f"{word} {grown:.0f}")
    return f" ({', '.join(parts)})" if parts else ""


def _ms(latencies: Latencies, percent: float) -> str:
    return f"{latencies.percentiles_us((percent,))[0] / 1000:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
