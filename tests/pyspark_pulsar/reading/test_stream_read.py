"""Streams: every message once over restarts, limits, lag, new topics, cursors, and what is not there any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.interop.support import Admin, wait_until  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402

BODIES = [b"message %d" % number for number in range(400)]
SPARK_S = 90.0
"""How long Spark may take to begin on a busy machine."""


def values(rows: list[Any]) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows)


def test_stream_keeps_limits_and_continues_after_a_restart(
    source: Source, publish: Publish, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        publish(f"{topic}-{number}", BODIES[number * 40 : number * 40 + 40], batching_enabled=False)
    options = {
        "topicsPattern": f"{topic}-.*",
        "startingOffsets": "earliest",
        "columns": "value",
        "maxRowsPerTrigger": 50,
    }
    first = source.run(source.stream(**options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:120])
    sizes = [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]]
    assert max(sizes) <= 50
    assert len(sizes) == 3
    lags = [progress["sources"][0] for progress in first.recentProgress]
    assert lags[0]["endOffset"] != lags[0]["latestOffset"]
    assert lags[-1]["endOffset"] == lags[-1]["latestOffset"]

    publish(f"{topic}-1", BODIES[120:130], batching_enabled=False)
    publish(f"{topic}-new", BODIES[130:140], batching_enabled=True)
    source.run(source.stream(**options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:140])


def test_running_stream_reads_new_messages_and_partitions(
    source: Source,
    publish: Publish,
    topic: str,
    make_partitioned: Callable[[str, int], None],
    admin: Admin,
    tmp_path: Path,
) -> None:
    """Begins at the end, reads what comes, and moves its subscription's cursor."""
    make_partitioned(topic, 2)
    publish(topic, BODIES[:10])
    stream = source.stream(topic=topic, columns="value,__topic", predefinedSubscription="follower")
    name = f"rows_{topic.replace('-', '_')}"
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        stream.writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint).start()
    )
    try:
        offsets = tmp_path / "checkpoint" / "offsets" / "0"

        def rows() -> list[bytes]:
            assert query.isActive, query.exception()
            return values(source.spark.table(name).collect())

        # With nothing to read Spark writes no offset; that it has looked for some says that the stream has begun.
        wait_until(
            lambda: query.status["message"] == "Waiting for data to arrive",
            "the first look at the ends",
            SPARK_S,
        )
        for number in range(2):
            assert "follower" in str(admin.stats(f"{topic}-partition-{number}"))
        publish(topic, BODIES[10:30], batching_enabled=False)
        wait_until(lambda: rows() == sorted(BODIES[10:30]), "the first rows", SPARK_S)
        assert offsets.exists()
        publish(topic, BODIES[30:40], batching_enabled=False)
        wait_until(lambda: rows() == sorted(BODIES[10:40]), "more rows", SPARK_S)

        def backlog() -> int:
            found = [admin.subscription(f"{topic}-partition-{number}", "follower") for number in range(2)]
            return sum(int(str(one["msgBacklog"])) for one in found)

        wait_until(lambda: backlog() <= 10, "the cursor follows one batch behind", SPARK_S)
    finally:
        query.stop()


def test_repeated_batch_keeps_its_tasks_when_num_partitions_changes(
    source: Source, publish: Publish, topic: str, tmp_path: Path
) -> None:
    """The sink numbers rows within a task, so another cut of the same batch would store rows twice and drop others."""
    for number in range(3):
        publish(f"{topic}-{number}", BODIES[:60], batching_enabled=False)

    def run(tasks: int, act: Callable[[Any, int], None]) -> Any:
        stream = source.stream(
            topicsPattern=f"{topic}-.*", columns="value", startingOffsets="earliest", numPartitions=str(tasks)
        )
        query = (
            stream.writeStream.foreachBatch(act)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def fail(rows: Any, number: int) -> None:
        raise RuntimeError("the sink dies")

    with pytest.raises(Exception, match="the sink dies"):
        run(3, fail)

    seen: list[tuple[int, int, int]] = []

    def note(rows: Any, number: int) -> None:
        seen.append((number, rows.rdd.getNumPartitions(), rows.count()))

    run(1, note)
    for number in range(3):
        publish(f"{topic}-{number}", BODIES[60:80], batching_enabled=False)
    run(1, note)
    assert seen == [(0, 3, 180), (1, 1, 60)]


@pytest.mark.slow
def test_stream_keeps_large_offsets_in_files(
    source: Source, publish: Publish, topic: str, tmp_path: Path
) -> None:
    for number in range(120):
        publish(f"{topic}-{number:03d}", [BODIES[number]], batching_enabled=False)
    options = {
        "topicsPattern": f"{topic}-.*",
        "startingOffsets": "earliest",
        "columns": "value",
        "offsetsLocation": str(tmp_path / "offsets"),
    }
    query = source.run(source.stream(**options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted(BODIES[:120])
    assert len(json.dumps(query.lastProgress["sources"][0]["endOffset"])) < 400
    publish(f"{topic}-007", [BODIES[200]], batching_enabled=False)
    source.run(source.stream(**options), tmp_path)
    assert values(source.rows(tmp_path)) == sorted([*BODIES[:120], BODIES[200]])
