"""Removal: the deletion of whole managed ledgers, and the rest of removals that a crash has interrupted."""
