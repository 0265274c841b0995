"""The PIP-430 entry cache: one removal queue for the broker, one range cache per managed ledger."""
