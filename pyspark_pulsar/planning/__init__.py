"""Decides on the driver which part of which topic each task reads.

Batch queries: `topics` -> `batch_plan` -> `split`. Streams: `topics` -> `topic_watch` (ends of topics) -> `stream_plan`
with `admission` (limits) -> `offsets` (what Spark's checkpoint keeps). `range_columns` carries the result to the tasks.
"""
