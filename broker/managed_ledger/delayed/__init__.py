"""Delayed entries: the entries of a managed ledger that must not be delivered before a time, and their durable form."""
