"""How fast does Spark read and write Pulsar topics through our source, beside the official client's loop?

`python -m bench.spark_source [--rows N] [--rounds N] [--cores N] [--topics N] [--json FILE]`

All in one execution against one broker of ours on loopback (cache policy `peers.CACHE_POLICY`, deduplication on), so
that other load of the machine falls on all of it. Printed are names and values, the best of the rounds: rows/s of a
write, of reads of the value alone and of all default columns; rows/s of the official client's receive loop into
Arrow; seconds of planning over many topics; milliseconds of finding the end of a batch under a limit of rows; bytes
and seconds of offsets for 600,000 topics without a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.peers import CACHE_POLICY, Magnetar
from pipeline.session import start_session
from pyspark_pulsar.client.cluster import open_cluster
from pyspark_pulsar.options import Limits, source_options
from pyspark_pulsar.planning.offset_files import OffsetFolder
from pyspark_pulsar.planning.offsets import Offsets, from_json, to_json
from pyspark_pulsar.planning.stream_plan import Admission
from pyspark_pulsar.position import EARLIEST, WHOLE
from pyspark_pulsar.reading.stream_reader import StreamDriver

VALUE_BYTES: Final = 100
DEFAULT: Final = "value,__key,__topic,__messageId,__publishTime,__eventTime,__messageProperties"
CLIENT_ROWS_PER_BATCH: Final = 10_000


def main(argv: list[str] | None = None) -> int:
    """Prints every figure; `client` as the first argument is the official client's own process."""
    if argv is None and len(sys.argv) > 1 and sys.argv[1] == "client":
        return _client(*sys.argv[2:])
    arguments = _parser().parse_args(argv)
    results: dict[str, float] = {}
    peer = Deduplicating()
    peer.start()
    try:
        spark = start_session("bench", master=f"local[{arguments.cores}]")
        _throughput(spark, peer.url, arguments, results)
        _limited(peer.url, results)
        if arguments.topics:
            _many_topics(spark, peer.url, arguments.topics, results)
        spark.stop()
    finally:
        peer.close()
    _offsets(arguments.simulated_topics, results)
    for name, value in results.items():
        print(f"{name:58} {value:14,.3f}" if value < 100 else f"{name:58} {value:14,.0f}")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}, cache policy {CACHE_POLICY}"
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


class Deduplicating(Magnetar):
    """Magnetar with deduplication, which writing exactly once needs."""

    def command(self) -> list[str]:
        """Adds the setting to Magnetar's command line."""
        return [*super().command(), "--set", "brokerDeduplicationEnabled=true"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_source", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes (2,000,000)")
    parser.add_argument("--client-rows", type=int, default=300_000, help="for the official client (300,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="of local[N] (2)")
    parser.add_argument("--topics", type=int, default=10_000, help="for planning, 0 leaves it out (10,000)")
    parser.add_argument("--simulated-topics", type=int, default=600_000)
    parser.add_argument("--json", help="also write the results into this file")
    return parser


def _best(rounds: int, work: Callable[[], object]) -> float:
    """Returns the seconds of the fastest round."""
    times = []
    for _ in range(rounds):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return min(times)


def _throughput(spark: Any, url: str, arguments: argparse.Namespace, results: dict[str, float]) -> None:
    rows = arguments.rows
    frame = spark.range(rows).selectExpr(f"lpad(cast(id as string), {VALUE_BYTES}, '0') as value")
    written = 0

    def write() -> None:
        nonlocal written
        written += 1
        writer = frame.write.format("pulsar").mode("append").option("service.url", url)
        writer.option("topic", f"written-{written}").save()

    results["write, exactly once, rows/s"] = rows / _best(arguments.rounds, write)

    def read(columns: str) -> Callable[[], None]:
        def one() -> None:
            reader = spark.read.format("pulsar").option("service.url", url).option("topic", "written-1")
            reader.option("columns", columns).load().write.format("noop").mode("overwrite").save()

        return one

    # Check before reads are timed: figures of a source that loses rows would be worth nothing.
    counted = (
        spark.read.format("pulsar").option("service.url", url).option("topic", "written-1").load().count()
    )
    if counted != rows:
        raise SystemExit(f"{counted} rows came back of {rows}")
    client = _best(2, lambda: _client_process(url, arguments.client_rows))
    results["official client's loop into Arrow, rows/s"] = arguments.client_rows / min(
        client, _client_seconds[0]
    )
    results["read, value alone, rows/s"] = rows / _best(arguments.rounds, read("value"))
    results["read, default columns, rows/s"] = rows / _best(arguments.rounds, read(DEFAULT))
    ratio = results["read, value alone, rows/s"] / results["official client's loop into Arrow, rows/s"]
    results["value alone, times the official client"] = ratio
    _columns(spark, url, arguments, results)


def _columns(spark: Any, url: str, arguments: argparse.Namespace, results: dict[str, float]) -> None:
    """Reads rows with keys and properties: all default columns, and the value alone."""
    each = arguments.rows // 10
    frame = spark.range(each * 10).selectExpr(
        f"lpad(cast(id as string), {VALUE_BYTES}, '0') as value",
        "cast(cast(id as string) as binary) as __key",
        "map('kind', cast(id % 7 as string)) as __messageProperties",
        "concat('keyed-', cast(id % 10 as string)) as __topic",
    )
    frame.write.format("pulsar").mode("append").option("service.url", url).save()

    def read(columns: str) -> Callable[[], None]:
        def one() -> None:
            reader = spark.read.format("pulsar").option("service.url", url)
            rows = reader.option("topicsPattern", "keyed-.*").option("columns", columns).load()
            rows.select("value").write.format("noop").mode("overwrite").save()

        return one

    whole = _best(arguments.rounds, read(DEFAULT))
    results["select(value), keys and properties, rows/s"] = each * 10 / whole
    pruned = _best(arguments.rounds, read("value"))
    results["the same with columns=value, times as fast"] = whole / pruned


_client_seconds: list[float] = [float("inf")]


def _client_process(url: str, rows: int) -> None:
    command = [sys.executable, "-m", "bench.spark_source", "client", url, "written-1", str(rows)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _client_seconds[0] = min(_client_seconds[0], float(answer.splitlines()[-1]))


def _client(url: str, topic: str, rows: str) -> int:
    """Receives with the official client as a program would: values into Arrow, ten thousand at a time."""
    import pulsar
    import pyarrow as pa

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    # The first message comes before the clock starts, so that connecting is not counted.
    reader.read_next(10_000)
    wanted, values, made = int(rows), [], 0
    began = time.monotonic()
    for _ in range(wanted):
        values.append(reader.read_next(10_000).data())
        if len(values) == CLIENT_ROWS_PER_BATCH:
            made += pa.array(values, pa.binary()).nbytes
            values = []
    print(time.monotonic() - began)
    client.close()
    return 0


def _limited(url: str, results: dict[str, float]) -> None:
    """Finds the ends of all batches of 3,000 rows over a topic that the sink wrote, whose first entry has one row."""
    topic = "persistent://public/default/written-1"
    options = source_options({"service.url": url, "topic": topic}, streaming=True)
    with open_cluster(options.cluster) as cluster:
        start = Offsets.at("bench", [topic], [EARLIEST])
        last = Offsets.at("bench", [topic], cluster.last_entries([topic], "bench"))
        admission = Admission(cluster, "bench-peek")
        batches = 0
        began = time.monotonic()
        while not start.same_as(last):
            start = admission.next_offsets(start, last, Limits(None, None, 3000))
            batches += 1
        results["end of a batch of 3,000 rows, ms"] = (time.monotonic() - began) * 1000 / batches


def _many_topics(spark: Any, url: str, topics: int, results: dict[str, float]) -> None:
    """Plans batches of a stream over many topics, of which each finds a few new messages."""
    frame = spark.range(topics).selectExpr(
        "cast(cast(id as string) as binary) as value",
        "concat('many-', lpad(cast(id as string), 6, '0')) as __topic",
    )
    began = time.monotonic()
    writer = frame.write.format("pulsar").mode("append").option("service.url", url)
    writer.option("deliveryGuarantee", "at-least-once").save()
    results[f"{topics:,} topics created by one write, s"] = time.monotonic() - began
    options = source_options(
        {"service.url": url, "topicsPattern": "many-.*", "startingOffsets": "earliest"}, streaming=True
    )
    driver = StreamDriver(options)
    none = Limits(None, None, None)
    began = time.monotonic()
    start = driver.initial()
    end = driver.latest(start, none)
    results[f"{topics:,} topics, first batch planned, s"] = time.monotonic() - began

    def plan() -> None:
        driver.tasks(start, driver.latest(end, none))
        driver.commit(end)

    results[f"{topics:,} topics, a batch planned, s"] = _best(3, plan)
    results[f"{topics:,} topics, offset, bytes"] = len(json.dumps(end))
    driver.close()


def _offsets(count: int, results: dict[str, float]) -> None:
    """Measures the offset work of one micro-batch: two from JSON, one new one, to JSON again."""
    topics = tuple(f"persistent://public/default/device-{number:06d}" for number in range(count))
    chance = np.random.default_rng(1)
    whole = np.full(count, WHOLE, np.int64)
    for name, ledgers in (
        ("ledgers in order of names", np.arange(count) + 1000),
        ("ledgers in any order", chance.permutation(count) + 1000),
    ):
        start = Offsets("bench", topics, ledgers, chance.integers(0, 16, count), whole)
        with tempfile.TemporaryDirectory() as folder:
            for place, files in (("in the offset", None), ("in offsetsLocation", OffsetFolder(folder))):
                text = json.dumps(to_json(start, 2, files))
                moved = Offsets("bench", topics, ledgers, start.entries + chance.integers(0, 2, count), whole)

                def batch(
                    text: str = text, moved: Offsets = moved, files: OffsetFolder | None = files
                ) -> None:
                    begin = from_json(json.loads(text), files)
                    encoded = json.dumps(to_json(moved, 2, files))
                    end = from_json(json.loads(encoded), files)
                    begin.aligned_to(end.topics).is_behind(end).sum()

                label = f"{count:,} topics, {name}, {place}"
                results[f"{label}, bytes"] = len(text)
                results[f"{label}, s"] = _best(3, batch)


if __name__ == "__main__":
    raise SystemExit(main())
