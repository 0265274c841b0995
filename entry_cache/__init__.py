"""The PIP-430 entry cache of a broker: caches, one removal queue over all cached entries, and when to evict.

The modules at this level are PIP-430 and are read in this order: `removal_queue`, `expected_reads`, `range_cache`,
`active_cursors`, `entry_cache`, `eviction`, `entry_cache_manager`. `policy` and `listener` are the two interfaces through
which everything else attaches: `policies` (the stash of PIP-430's first revision, and our own `magnetar`), `bounds`
(pinned receive buffers, the strict size) and `observe` (statistics, decisions, access records). `compose` puts it together.

Nothing here has a clock, a timer or I/O: the owner passes `now_ns` and calls the periodic pass.
"""
