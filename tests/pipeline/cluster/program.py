"""A user's program on a cluster: writes rows to Pulsar, copies them by a stream, reads them back, prints what it saw.

Run as a process of its own, because a process has one Spark session: `program.py MASTER URL TOPIC FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder

from pipeline.session import start_session

ROWS = 5000


def main() -> None:
    master, url, topic, folder = sys.argv[1:]
    spark = start_session("cluster", master=master, quick_start=True)

    def where(rows: Iterable[int]) -> Iterator[tuple[str, str, str, bool]]:
        import pyspark_pulsar

        list(rows)
        others = [path for path in sys.path if "magnetar-code-" not in path]
        installed = PathFinder.find_spec("pyspark_pulsar", others) is not None
        yield os.environ["SPARK_EXECUTOR_DIRS"], str(pyspark_pulsar.__file__), sys.executable, installed

    seen = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect()
    numbers = spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) as value")
    numbers.write.format("pulsar").mode("append").options(**{"service.url": url, "topic": topic}).save()
    source = {"service.url": url, "topic": topic, "startingOffsets": "earliest", "maxRowsPerTrigger": "2000"}
    query = (
        spark.readStream.format("pulsar")
        .options(**source)
        .load()
        .select("value")
        .writeStream.format("pulsar")
        .options(**{"service.url": url, "topic": f"{topic}-copy"})
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = spark.read.format("pulsar").options(**{"service.url": url, "topic": f"{topic}-copy"}).load()
    values = sorted(int(row.value) for row in copied.select("value").collect())
    print(
        json.dumps(
            {
                "executors": sorted({one[0] for one in seen}),
                "modules": sorted({one[1] for one in seen}),
                "pythons": sorted({one[2] for one in seen}),
                "installed": sorted({one[3] for one in seen}),
                "complete": values == list(range(ROWS)),
                "batches": len(query.recentProgress),
            }
        )
    )
    spark.stop()


main()
