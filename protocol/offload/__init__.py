"""The objects of offloaded ledgers."""
