"""Ledgers on bookies: numbering, completing in order, recovery; embedded, BookKeeper v2 and in memory."""
