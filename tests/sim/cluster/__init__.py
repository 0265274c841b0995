"""Several simulated brokers on one metadata store and shared bookies: leases, lookups, moves, and the ends of sessions."""
