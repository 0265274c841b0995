"""`python -m tests.exactly_once.driver URL SOURCE SINK CHECKPOINT DEATHS`: a stream from Parquet files to a topic.

In every second micro-batch the first try of each task kills its own process when half of its rows have passed, and
leaves a file in DEATHS.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRIES = 3


def dying(deaths: Path, rows_per_task: int) -> Any:
    """Returns the function for `mapInArrow` that kills its own process."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.num_rows
            if batch_id % 2 == 0 and context.attemptNumber() == 0 and passed > rows_per_task // 2:
                (deaths / f"{batch_id}-{context.partitionId()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return pass_on


def main() -> None:
    from pipeline.session import start_session

    url, source, sink, checkpoint, deaths, rows_per_file = sys.argv[1:]
    spark = start_session(
        "exactly once",
        master=f"local[2,{TRIES}]",
        quick_start=True,
        settings={
            # Small record batches, so that a task can die in the middle; a task per file.
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(max(int(rows_per_file) // 20, 1)),
            "spark.sql.files.openCostInBytes": str(1 << 30),
        },
    )
    stream = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 2).parquet(source)
    query = (
        stream.mapInArrow(dying(Path(deaths), int(rows_per_file)), "value binary")
        .writeStream.format("pulsar")
        .option("service.url", url)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
