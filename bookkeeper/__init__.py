"""BookKeeper without a broker: a client of bookies, ensembles, the metadata store, re-replication, the rules of leaks."""
