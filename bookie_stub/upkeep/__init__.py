"""Garbage collection, compaction, and the watch over free disk space."""
