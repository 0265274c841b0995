"""Implements Spark's writers: rows become entries, and each entry is stored once.

    writer (Spark's calls, row numbers) -> partition_router -> value_encoder, message_rows (bytes of messages)
        -> publisher (connections, receipts, retries) -> topic_producer (borders of entries, what is stored)

Exactly once, in short: a row's sequence id is `batch number << 32 | row number in its task`, and the producer's name is
that of query and task. Broker-side deduplication stores an id of one producer name only once. So writing a task's rows
again is harmless, and Spark's commit has nothing left to do.

* A task dies in the middle: Spark runs it again. The new producer is told the highest id that is stored, and continues
  after it.
* The driver dies in the middle of a batch: the next driver repeats the batch with the same number and offsets.
* The driver dies between the last receipt and the commit: the whole batch is repeated, and the broker stores none of it.
* The broker dies: the publisher connects again and sends the entries without a receipt; duplicates are dropped by id.
"""
