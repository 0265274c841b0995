"""How long does the forced deletion of a namespace take, and what do clients of another namespace notice?

`python -m bench.deletion [--topics 10000] [--rate 500] [--seconds 10] [--closed]`

A broker on disk. One namespace gets topics, each with a subscription and one message, so each has a ledger list, a cursor
and a ledger. A producer of 1 KiB messages writes to another namespace at a fixed rate; its times from send to receipt are
taken while the broker is otherwise idle, and then while the namespace is deleted. `--closed` restarts the broker first,
so that the topics are not open. The lag is the longest time for which the event loop was held, the processor's other
work included.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
import urllib.request
from typing import NamedTuple

import pulsar
from aiohttp import ClientSession

from bench.clients import Client
from bench.peers import Magnetar
from bench.worker import Job
from bench.workloads import new_topic, settle

MESSAGE_BYTES = 1024
NAMESPACE = "public/leaving"
AT_ONCE = 50
WARM_SHARE = 0.1
"""Share of the first latencies that is dropped."""
LAG_METRIC = "magnetar_event_loop_lag_seconds"
LAG_WINDOW_S = 20
"""The metric has the longest lag of the last ten to twenty seconds."""


class Latencies(NamedTuple):
    """Times from send to receipt."""

    median_ms: float
    p99_ms: float
    longest_ms: float


def main(argv: list[str] | None = None) -> int:
    """Prints the time of the deletion, both rows of latencies, and their ratio."""
    parser = argparse.ArgumentParser("python -m bench.deletion")
    parser.add_argument("--topics", type=int, default=10_000, help="topics of the namespace (10,000)")
    parser.add_argument("--rate", type=float, default=500.0, help="messages per second beside it (500)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the idle measurement (10)")
    parser.add_argument("--closed", action="store_true", help="restart the broker before the deletion")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    settings = ("flushInterval=3600000", "forceDeleteNamespaceAllowed=true")
    broker = Magnetar("magnetar", settings)
    try:
        broker.start()
        asyncio.run(_fill(broker, options.topics))
        if options.closed:
            broker.restart()
        settle(broker)
        _measure(broker, options)
    finally:
        broker.close()
    return 0


def _measure(broker: Magnetar, options: argparse.Namespace) -> None:
    idle, _ = _serve(broker, options.rate, options.seconds, None)
    # The window of the metric must not have the fill in it.
    time.sleep(LAG_WINDOW_S)
    idle_lag_ms = _lag_ms(broker)
    # Long enough for the deletion; the producer's rest is left out below.
    busy, taken_s = _serve(broker, options.rate, 4 * options.seconds, NAMESPACE)
    lag_ms = _lag_ms(broker)
    print(f"{options.topics:,} topics deleted in {taken_s:.1f} s")
    for name, one, lag in (("idle", idle, idle_lag_ms), ("deleting", busy, lag_ms)):
        print(
            f"{name:<9} median {one.median_ms:6.2f} ms   p99 {one.p99_ms:6.2f} ms   longest {one.longest_ms:6.1f} ms"
            f"   loop lag {lag:5.1f} ms"
        )
    print(f"p99 ratio {busy.p99_ms / idle.p99_ms:.2f}")


def _serve(broker: Magnetar, rate: float, seconds: float, deleted: str | None) -> tuple[Latencies, float]:
    """Produces for so long, deletes the namespace meanwhile, and returns the latencies of that time."""
    job: Job = {
        "kind": "produce",
        "url": broker.url,
        "topic": new_topic("deletion"),
        "size": MESSAGE_BYTES,
        "count": int(rate * seconds),
        "rate": rate,
    }
    with Client(job) as producer:
        producer.go()
        began = time.monotonic()
        time.sleep(seconds * WARM_SHARE)
        started_s = time.monotonic() - began
        if deleted is not None:
            _delete(broker, deleted)
        ended_s = time.monotonic() - began
        found = producer.result()["latencies_us"]
    # The messages were due at fixed times, so a message's number says when it was sent.
    last = len(found) if deleted is None else min(len(found), max(1, int(ended_s * rate)))
    chosen = sorted(found[int(started_s * rate) : last])
    share = len(chosen) * 99 // 100
    return (
        Latencies(chosen[len(chosen) // 2] / 1000, chosen[share] / 1000, chosen[-1] / 1000),
        ended_s - started_s,
    )


def _delete(broker: Magnetar, namespace: str) -> None:
    url = f"http://127.0.0.1:{broker.http_port}/admin/v2/namespaces/{namespace}?force=true"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=600) as answer:
        assert answer.status == 204, answer.status


def _lag_ms(broker: Magnetar) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(LAG_METRIC):
                return float(line.rsplit(" ", 1)[1]) * 1000
    raise AssertionError(f"{LAG_METRIC} is missing")


async def _fill(broker: Magnetar, topics: int) -> None:
    """Makes the topics with a subscription each over REST, then publishes one message to each."""
    began = time.monotonic()
    names = [f"{NAMESPACE}/t{number}" for number in range(topics)]
    async with ClientSession(f"http://127.0.0.1:{broker.http_port}") as admin:
        await _put(admin, f"/admin/v2/namespaces/{NAMESPACE}")
        for start in range(0, topics, AT_ONCE):
            some = [f"/admin/v2/persistent/{name}" for name in names[start : start + AT_ONCE]]
            await asyncio.gather(*(_put(admin, path) for path in some))
            await asyncio.gather(*(_put(admin, f"{path}/subscription/s") for path in some))
    await asyncio.to_thread(_publish, broker.url, names)
    print(f"{topics:,} topics made in {time.monotonic() - began:.0f} s", flush=True)


async def _put(admin: ClientSession, path: str) -> None:
    async with admin.put(path, json={} if "namespaces" in path else None) as answer:
        assert answer.status == 204, (path, answer.status, await answer.text())


def _publish(url: str, names: list[str]) -> None:
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    for name in names:
        producer = client.create_producer(f"persistent://{name}", batching_enabled=False)
        producer.send(b"x" * 100)
        producer.close()
    client.close()


if __name__ == "__main__":
    sys.exit(main())
