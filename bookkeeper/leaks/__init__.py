"""Leaks: the rules by which metadata and ledgers count as left over; pure, for the audits on Spark and the one online."""
