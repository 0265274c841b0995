"""Managed ledgers: each topic's entries in BookKeeper ledgers, with cursors and shared reads. See the files in this order:

1. `managed_ledger`: the parts and how they open and close; `ledger_context`: the state they share
2. adding: `ledger_writer`; `ledger_list`, `ledger_list_store`, `managed_ledger_info`: the list in memory and stored
3. cursors: `managed_cursor`, `acks`, `cursor_info_writer`; `ledger_cursors` opens them
4. a miss: `forward_read`, `entry_read`, `read_plan`, `storage_reads`; `redelivery_reads`, `single_entry` use the same way
5. limits: `inflight_reads_limiter`, `read_deadlines`; the cache: `reading_cursors`, `backlog_caching`
6. ends: `trimming`, `opening`
"""
