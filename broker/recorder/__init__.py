"""The access record: every event of the entry cache, in Parquet files that can be replayed and analysed."""
