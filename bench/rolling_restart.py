"""How many storage reads does each cache policy save in the proposal's rolling restart, on real sockets?

`python -m bench.rolling_restart [--seconds 30] [--policy NAME ...]`

A broker of its own for each policy, an official client that produces to a topic of four partitions, and ten Shared
subscriptions, each with one consumer in a process of its own. In each of three rounds every consumer is closed once and
comes back half a second later, one after another. The cache holds 0.6 seconds of the stream, as the 250 MB of PIP-430's
author did at 50,000 entries of 8 KiB a second; here it is 400 a second and 2 MB by default.

Columns: policy (with its profile), entries consumed, entries read from storage, and the percentage that needed no
storage read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import urllib.request
from multiprocessing.queues import Queue
from pathlib import Path

import pulsar
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[1]
SUBSCRIPTIONS = 10
ROUNDS = 3
AWAY_S = 0.5
BODY = bytes(8 * 1024)
TOPIC = "persistent://public/default/rolling"
POLICIES = {
    "fifo-ttl": ("entryCachePolicy=fifo-ttl", "cacheEvictionByExpectedReadCount=false"),
    "mark-delete": (
        "entryCachePolicy=fifo-ttl",
        "cacheEvictionByExpectedReadCount=false",
        "cacheEvictionByMarkDeletedPosition=true",
    ),
    "pip430 4.2": ("entryCachePolicy=pip430", "magnetarProfile=4.2"),
    "pip430 5.0": ("entryCachePolicy=pip430", "magnetarProfile=5.0"),
    "magnetar": ("entryCachePolicy=magnetar",),
}


def consume(url: str, number: int, seconds: float, counts: Queue[int]) -> None:
    """Consumes one subscription with its absences, in a process of its own; puts the number of messages into `counts`."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    received = 0
    begun = time.monotonic()
    away = [seconds * (round_ + 1) / (ROUNDS + 1) + 0.25 * number * seconds / 30 for round_ in range(ROUNDS)]
    consumer = _subscribe(client, number)
    while (now := time.monotonic() - begun) < seconds + 2:
        if away and now >= away[0]:
            away.pop(0)
            consumer.close()
            time.sleep(AWAY_S)
            consumer = _subscribe(client, number)
        try:
            message = consumer.receive(100)
        except pulsar.Timeout:
            continue
        received += 1
        consumer.acknowledge(message)
    client.close()
    counts.put(received)


def _subscribe(client: pulsar.Client, number: int) -> pulsar.Consumer:
    return client.subscribe(TOPIC, f"s{number}", pulsar.ConsumerType.Shared, receiver_queue_size=200)


def produce(url: str, rate: float, seconds: float) -> None:
    """Produces at an even rate and returns when all is stored."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
    begun = time.monotonic()
    sent = 0
    while (now := time.monotonic() - begun) < seconds:
        while sent < now * rate:
            producer.send_async(BODY, None)
            sent += 1
        time.sleep(0.005)
    producer.flush()
    client.close()


def run(policy: str, rate: float, cache_mb: int, seconds: float) -> dict[str, float]:
    """Measures one policy with a broker of its own."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        settings = ("brokerServicePort=0", "webServicePort=0", f"managedLedgerCacheSizeMB={cache_mb}")
        flags = [part for one in (*settings, *POLICIES[policy]) for part in ("--set", one)]
        command = [sys.executable, "-m", "magnetar", "standalone", "--data", f"{folder}/data"]
        with subprocess.Popen(
            [*command, "--ready-file", str(ready), *flags], cwd=ROOT, stderr=subprocess.DEVNULL
        ) as broker:
            try:
                while not ready.exists():
                    time.sleep(0.02)
                address = json.loads(ready.read_text())
                _partition(address["admin"])
                counts: Queue[int] = spawn.Queue()
                consumers = [
                    spawn.Process(target=consume, args=(address["pulsar"], number, seconds, counts))
                    for number in range(SUBSCRIPTIONS)
                ]
                for consumer in consumers:
                    consumer.start()
                produce(address["pulsar"], rate, seconds)
                received = sum(counts.get(timeout=seconds + 60) for _ in consumers)
                for consumer in consumers:
                    consumer.join()
                return _counters(address["admin"]) | {"received": received}
            finally:
                broker.terminate()


def _partition(admin: str) -> None:
    request = urllib.request.Request(
        f"{admin}/admin/v2/persistent/public/default/rolling/partitions",
        data=b"4",
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()


def _counters(admin: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{admin}/metrics") as answer:
        text = answer.read().decode()
    wanted = ("pulsar_ml_cache_x_hits_total", "pulsar_ml_cache_x_misses_total")
    return {
        sample.name.removeprefix("pulsar_ml_cache_x_").removesuffix("_total"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in wanted
    }


def main() -> None:
    """Prints a row per policy when it is measured."""
    parser = argparse.ArgumentParser(
        "python -m bench.rolling_restart", description="The proposal's experiment."
    )
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=400, help="entries of 8 KiB a second")
    parser.add_argument("--cache-mb", type=int, default=2)
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    options = parser.parse_args()
    print("| policy | consumed | from storage | needed no storage read |\n|---|---|---|---|", flush=True)
    for policy in options.policy:
        found = run(policy, options.rate, options.cache_mb, options.seconds)
        part = 1 - found["misses"] / found["received"]
        print(
            f"| {policy} | {found['received']:.0f} | {found['misses']:.0f} | {100 * part:.1f} % |", flush=True
        )


if __name__ == "__main__":
    main()
