"""Audits of a snapshot of a cluster's metadata: leftovers, missing ledgers and overdue ones. Nothing is ever deleted."""
