"""Decides on the driver which part of which topic each task reads.

Batch queries: `topics` -> `batch_plan` -> `split`. Streams: `topics` -> `topic_watch` (ends of topics) -> `stream_plan`
with `known_sizes` and `admission` (limits) -> `offsets` (what Spark's checkpoint keeps). `range_columns` carries the
result to the tasks.
"""
