"""Admin API of clusters, brokers, tenants, settings and the entry cache."""
