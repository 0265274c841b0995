"""The disk room: caches, entry logs, indexes and the files beside them.

Writing, in the order of a checkpoint: `write_cache` (`ledger_entries`, `arena`) → `checkpoint` → `ledger_storage`
(`entry_log_writer`, `tombstones`, `location_index`, `ledger_index`, `inventory`) → `marks`.
Reading: `read_cache`; `read_pool` → `stored_entries` (`readahead`, `location_index`, `entry_log_reader`) → `read_cache`.
Starting: `directories` (`cookie`, `marks`).
"""
