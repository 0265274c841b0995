"""The Spark session that the source's tests use too."""

from __future__ import annotations

from tests.pyspark_pulsar.conftest import spark

__all__ = ["spark"]
