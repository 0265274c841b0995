"""From a broker's counts to hit ratios and drops: the lines that are printed, equal to the broker's own counters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulsar
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from pipeline.live.drop_watch import DropWatch, LiveDrop, Minute
from pipeline.live.hit_ratio import by_minute, counts_of, start, tell_open_minutes
from pipeline.spark_errors import sentence_of
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.pipeline.jobs.test_on_the_sample import SAMPLE
from tests.vectors.broker_process import BrokerProcess

MINUTE_MS = 60_000
START_MS = 1_700_000_040_000
"""2023-11-14 22:14"""


def judged(ratios: list[float], reads: int = 1000, **options: Any) -> list[int]:
    """The minutes in which a drop is reported."""
    watch = DropWatch(**{"drop": 0.1, "reads_min": 100, **options})
    told = [
        watch.judge(Minute(number, "t", int(ratio * reads), reads)) for number, ratio in enumerate(ratios)
    ]
    return [drop.start_ms for drop in told if drop is not None]


def test_drop_is_reported_once_until_the_ratio_is_back() -> None:
    assert judged([0.9] * 5 + [0.5, 0.5, 0.4] + [0.9] * 10 + [0.5]) == [5, 18]


def test_no_drop_is_reported_when_the_change_is_small_early_rare_or_slow() -> None:
    assert judged([0.9] * 5 + [0.81] * 5) == [], "not far enough"
    assert judged([0.9, 0.1, 0.1, 0.9, 0.9]) == [], "no past yet"
    assert judged([0.9] * 5 + [0.0] * 5, reads=99) == [], "hardly read"
    assert judged([0.9 - number / 100 for number in range(80)]) == [], "slowly"


def test_drop_has_the_average_before_and_the_ratio_now() -> None:
    watch = DropWatch(0.1, 1)
    for number in range(4):
        watch.judge(Minute(number, "t", 9, 10))
    assert watch.judge(Minute(4, "other", 0, 10)) is None
    assert watch.judge(Minute(5, "t", 1, 10)) == LiveDrop(5, "t", pytest.approx(0.9), 0.1)  # type: ignore[arg-type]  # compares like a float


def follow(spark: Any, url: str, topic: str, folder: Path) -> list[str]:
    said: list[str] = []
    minutes = by_minute(counts_of(spark, url, topic, "earliest"))
    watch = DropWatch(0.1, 100)
    checkpoint = f"{folder}/checkpoint"
    query = start(minutes, watch, checkpoint, out=(folder / "out").as_uri(), once=True, tell=said.append)
    query.awaitTermination()
    tell_open_minutes(spark, query, checkpoint, watch, said.append)
    return said


def message(minute: int, second: int, **hits: int) -> bytes:
    """Each topic with 1,000 reads, of which `hits`."""
    topics = [
        {"topic": name, "hits": count, "misses": 990 - count, "coalesced": 10} for name, count in hits.items()
    ]
    at_ms = START_MS + minute * MINUTE_MS + second * 1000
    return json.dumps({"at_ms": at_ms, "interval_s": 30, "broker": "b", "topics": topics}).encode()


def test_stream_prints_minutes_and_drops_and_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {}, memory=True) as broker:
        url = broker.addresses.pulsar
        client = connect(url)
        producer = client.create_producer("counts")
        publish(
            producer, [message(n, s, good=900, bad=900 if n < 5 else 100) for n in range(6) for s in (1, 31)]
        )
        publish(producer, [b"no message of ours", message(7, 0, good=900)])
        said = follow(spark, url, "counts", tmp_path)
        assert [line for line in said if "!" not in line] == [
            *(f"2023-11-14 22:{14 + n}  hit ratio 0.9000  4,000 reads of 2 topics" for n in range(5)),
            "2023-11-14 22:19  hit ratio 0.5000  4,000 reads of 2 topics",
            "2023-11-14 22:21  hit ratio 0.9000  1,000 reads of 1 topic so far",
        ]
        assert [line for line in said if "!" in line] == [
            "2023-11-14 22:19  ! bad: hit ratio 0.1000 after 0.9000"
        ]
        publish(producer, [message(9, 0, good=500)])
        assert follow(spark, url, "counts", tmp_path) == [
            "2023-11-14 22:21  hit ratio 0.9000  1,000 reads of 1 topic",
            "2023-11-14 22:23  hit ratio 0.5000  1,000 reads of 1 topic so far",
        ]
        assert follow(spark, url, "counts", tmp_path) == [], "nothing new"
        client.close()
    rows = spark.read.parquet(str(tmp_path / "out")).where("topic = 'bad'").orderBy("minute").collect()
    assert [(row.hits, row.reads) for row in rows] == [(1800, 2000)] * 5 + [(200, 2000)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: pyspark_pulsar.errors.BrokerLost: no broker\n SQLSTATE: 38000",
            "no broker",
        ),
        ("[PATH_NOT_FOUND] there is no a\n  at b.c(D.scala:1)\n SQLSTATE: 42K03", "there is no a"),
        ("", "ValueError"),
    ],
)
def test_sentence_of_finds_the_sentence_in_an_error_of_spark(text: str, expected: str) -> None:
    assert sentence_of(ValueError(text)) == expected


@pytest.mark.slow
def test_interrupt_ends_live_with_one_line(tmp_path: Path) -> None:
    """The signal goes to the whole process group, as Ctrl-C in a terminal does."""
    with BrokerProcess(tmp_path, {}, memory=True) as broker:
        client = connect(broker.addresses.pulsar)
        # The producer stays: a topic without clients is deleted after a minute, and Spark may start more slowly than that.
        publish(client.create_producer("counts"), [message(n, 1, good=900) for n in range(3)])
        words = ["live", "counts", "--service-url", broker.addresses.pulsar, "--master", "local[1]"]
        words += ["--checkpoint", str(tmp_path / "checkpoint"), "--starting", "earliest"]
        said = tmp_path / "stderr"
        with said.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "magnetar", "pipeline", *words],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        try:
            assert process.stdout is not None
            assert "hit ratio 0.9000" in process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            client.close()
    text = said.read_text()
    assert "Traceback" not in text
    assert "\tat " not in text, "a trace of Java"
    assert text.splitlines()[-1] == "stopped; the next start continues at the checkpoint"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["starting Spark", "checking the files"])
def test_interrupt_ends_a_job_without_a_trace(line: str, tmp_path: Path) -> None:
    """While Java starts, and while Python waits for an answer of Java."""
    words = [sys.executable, "-m", "magnetar", "pipeline", "hit-report", str(SAMPLE), "--out", str(tmp_path)]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stderr is not None
        said: list[str] = []
        while not said or not said[-1].startswith(line):
            said.append(process.stderr.readline())
            assert said[-1], said
        os.killpg(process.pid, signal.SIGINT)
        said.append(process.communicate(timeout=120)[1])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    text = "".join(said)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert "\tat " not in text, "a trace of Java"


def test_broker_publishes_its_own_counts(tmp_path: Path) -> None:
    settings = {"entryCacheCountsTopic": "counts", "entryCacheCountsIntervalSeconds": "1"}
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        client = connect(broker.addresses.pulsar)
        counts = client.subscribe("counts", "test")
        publish(client.create_producer("read", batching_enabled=False), numbered(50))
        late = client.subscribe("read", "late", initial_position=pulsar.InitialPosition.Earliest)
        receive(late, 50)
        found = {"hits": 0, "misses": 0, "coalesced": 0}

        def all_counted() -> bool:
            value = json.loads(counts.receive(60_000).data())
            assert value["interval_s"] == 1
            for row in value["topics"]:
                assert row["topic"] == "persistent://public/default/read", "and not the counts themselves"
                for name in found:
                    found[name] += row[name]
            return sum(found.values()) == 50

        wait_until(all_counted, "50 reads")
        metric = Admin.of(broker).metric
        topic = "persistent://public/default/read"
        for kind in found:
            assert found[kind] == metric(f"pulsar_ml_cache_x_topic_{kind}_total", topic=topic)
        client.close()
