"""Adds, reads, fences and deletions, judged ledger by ledger."""
