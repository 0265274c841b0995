"""One bookie as writers and readers of ledgers see it: over TCP, embedded, in memory."""
