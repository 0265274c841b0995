"""A small, complete bookie with BookKeeper's files and wire.

Journal, write cache, entry logs, indexes, read cache, v2 and v3, upkeep and tools; docs/explanation/bookie.md explains it.
"""
