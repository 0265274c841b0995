"""Offline analysis of access records, snapshots and traces. No broker imports this package."""
