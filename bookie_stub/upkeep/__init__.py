"""The upkeep room: garbage collection, compactions, and the disk monitor.

`garbage_collector` runs rounds; a round uses `over_replicated`, `log_usage` (which logs are dead) and
`directory_compactions` (`compaction`, `throttler`). `disk_monitor` watches the free space on the disks.
"""
