"""Implements Spark's readers: planning and cursors on the driver, ranges of topics in the tasks.

`batch_reader` and `stream_reader` are what Spark calls. A task runs `range_reader`, which keeps one `lane` per topic.
"""
