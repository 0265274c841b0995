"""Finds the messages in received bytes, column by column. Pure functions without Spark; runs in the tasks.

No Python object is made per message: each stage turns arrays into arrays with one element per entry or per message, and
starts and ends are indexes into the receive buffer. A loop of the official client, which makes an object per message,
reads 175,000 rows a second; this way it is more than a million (docs/reference/benchmarks.md).

    Messages -> chunks.join -> entry_table.cut_entries -> message_table.cut_messages -> columns/

`protobuf_columns` reads and writes protobuf fields of many messages at once; the other modules are built on it.
"""
