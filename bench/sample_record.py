"""Records the access record that ships as a sample, with our own broker and the official client.

`python -m bench.sample_record [FOLDER] [--rounds N]`, half a minute

Four topics with three subscriptions each: one reads at the tail, one two seconds late, one eight seconds late. The
cache is too small for the second and its time to live too short for the third. The policy is `pip430`, profile 4.2.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pulsar

from bench.peers import Magnetar

TOPICS: Final = ("orders", "payments", "clicks", "audit")
LAG_ROUNDS: Final[Mapping[str, int]] = {"tail": 0, "billing": 40, "archive": 160}
"""The lag of each subscription, in rounds."""
ROUND_S: Final = 0.05
MESSAGES: Final = 5
"""Messages per topic and round."""
BODY_BYTES: Final = (400, 1200, 2500, 5000)
"""Bytes of a message, by topic."""
SETTINGS: Final[Mapping[str, str]] = {
    "entryCachePolicy": "pip430",
    "pulsarDefaults": "4.2",
    "managedLedgerCacheSizeMB": "1",
    "entryCacheRecordFileSeconds": "3600",
}
SAMPLE: Final = Path(__file__).resolve().parents[1] / "pipeline" / "sample"


def work(
    url: str, rounds: int, lag_rounds: Mapping[str, int], body_bytes: Sequence[int], round_s: float = ROUND_S
) -> float:
    """Publishes each round's messages; each subscription receives them its lag later.

    `round_s`: seconds of a round. With 0 a round begins when the one before it is confirmed and received, so that lags, in
    rounds, are equal on a fast and on a busy machine. Returns by how many seconds the latest round ended too late.
    """
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumers = {
        (topic, name): client.subscribe(topic, name, receiver_queue_size=MESSAGES)
        for topic in TOPICS
        for name in lag_rounds
    }
    producers = {topic: client.create_producer(topic, batching_enabled=False) for topic in TOPICS}
    waiting = {key: deque(range(rounds)) for key in consumers}
    began, late_s = time.monotonic(), 0.0
    for number in range(rounds + max(lag_rounds.values())):
        if number < rounds:
            for topic, size in zip(TOPICS, body_bytes, strict=True):
                for _ in range(MESSAGES):
                    producers[topic].send_async(bytes(size), None)
            for producer in producers.values():
                producer.flush()
        for (topic, name), consumer in consumers.items():
            if waiting[topic, name] and waiting[topic, name][0] + lag_rounds[name] <= number:
                waiting[topic, name].popleft()
                for _ in range(MESSAGES):
                    consumer.acknowledge_cumulative(consumer.receive(20_000))
        left_s = began + (number + 1) * round_s - time.monotonic()
        late_s = max(late_s, -left_s)
        time.sleep(max(0.0, left_s))
    client.close()
    return late_s


def record(
    folder: Path,
    rounds: int,
    settings: Mapping[str, str],
    lag_rounds: Mapping[str, int] = LAG_ROUNDS,
    body_bytes: Sequence[int] = BODY_BYTES,
    round_s: float = ROUND_S,
) -> float:
    """Starts a broker, does the work, and stops it; the access record is below `folder`.

    `round_s`: as for `work`. Returns by how many seconds the latest round ended too late. A cache with a time to live sees
    another workload when rounds are late.
    """
    recorded = {**SETTINGS, **settings, "entryCacheRecordDirectory": str(folder.absolute())}
    broker = Magnetar("recorded", tuple(f"{key}={value}" for key, value in recorded.items()))
    try:
        broker.start()
        return work(broker.url, rounds, lag_rounds, body_bytes, round_s)
    finally:
        broker.close()


def main() -> None:
    """Replaces the folder's content and prints its size."""
    parser = argparse.ArgumentParser(
        "python -m bench.sample_record", description="Record the sample that ships."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=SAMPLE, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=400, metavar="N", help="of 50 ms each (default 400)")
    options = parser.parse_args()
    if options.folder.exists():
        shutil.rmtree(options.folder)
    record(options.folder, options.rounds, {})
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    print(f"{options.folder}: {size:,} bytes")


if __name__ == "__main__":
    main()
