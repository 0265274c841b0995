"""Apache Pulsar as a Spark data source: `spark.read.format("pulsar")`.

Spark finds it without registration: when it first looks a format up, it imports every installed package whose name
begins with `pyspark_` and registers the package's class `DefaultSource`.

Rooms, each importing only those before it: `cutting` (received bytes to numpy columns), `client` (connections),
`columns` (numpy columns to Arrow), `planning` (topics, offsets, limits; driver only), `reading` and `writing`.
"""

from __future__ import annotations

from pyspark_pulsar.data_source import PulsarDataSource as DefaultSource

__all__ = ["DefaultSource"]
