"""The disk room: entries from the write cache to entry logs and back, and the small files beside them.

Writing, in the order of a checkpoint: `write_cache` (`ledger_entries`, `arena`) → `checkpoint` → `ledger_storage`
(`entry_log_writer`, `tombstones`, `location_index`, `ledger_index`, `inventory`) → `marks`.
Reading: `read_cache`; `read_pool` → `stored_entries` (`readahead`, `location_index`, `entry_log_reader`) → `read_cache`.
Starting: `directories` (`cookie`, `marks`).
"""
