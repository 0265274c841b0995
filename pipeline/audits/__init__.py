"""Audits of a snapshot of a cluster's metadata.

They find leftovers, missing ledgers and overdue ones. Nothing is ever deleted.
"""
