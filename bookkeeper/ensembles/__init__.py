"""Ledgers on one bookie or many: numbering, completing in order, choosing bookies, reading, recovering."""
