"""Shadows: managed ledgers without a writer, which read the log of another topic (PIP-180)."""
