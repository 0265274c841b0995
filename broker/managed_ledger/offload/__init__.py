"""Copies of closed ledgers in other storage: what the list says of them, when they are made, how they are read.

The storage itself is `broker/offload`, which is imported when the first ledger needs it.
"""
