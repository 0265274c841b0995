"""Everything that observes the cache: decisions and why, access records and their replay, statistics, usage by topic.

All of it attaches through `entry_cache.listener`; nothing in the core imports it.
"""
