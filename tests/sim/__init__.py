"""The broker's ledger client and several bookies in one deterministic simulation: one seed, one history."""
