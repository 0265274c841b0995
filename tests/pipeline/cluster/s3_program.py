"""A user's program with S3: copies a topic by a stream whose table and checkpoint are in a bucket; prints the count.

Run as a process of its own, because a process has one Spark session: `s3_program.py URL TOPIC BUCKET`.
"""

from __future__ import annotations

import sys

from pipeline.session import start_session


def main() -> None:
    url, topic, bucket = sys.argv[1:]
    spark = start_session("s3", master="local[2]", quick_start=True)
    source = {"service.url": url, "topic": topic, "startingOffsets": "earliest", "maxRowsPerTrigger": "1500"}
    stream = spark.readStream.format("pulsar").options(**source).load().select("value", "__messageId")
    for _ in range(2):
        # The second query begins with the checkpoint in the bucket and finds nothing new.
        query = (
            stream.writeStream.format("parquet")
            .option("path", f"s3a://{bucket}/table")
            .option("checkpointLocation", f"s3a://{bucket}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    table = spark.read.parquet(f"s3a://{bucket}/table")
    print(table.count(), table.select("value").distinct().count())
    spark.stop()


main()
