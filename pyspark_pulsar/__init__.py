"""Apache Pulsar as a Spark data source: `spark.read.format("pulsar")`, found by Spark through this package's name."""

from __future__ import annotations

from pyspark_pulsar.data_source import PulsarDataSource as DefaultSource

__all__ = ["DefaultSource"]
