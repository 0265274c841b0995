"""Spark asks, we read: batch and stream readers on the driver, ranges of topics in the tasks."""
