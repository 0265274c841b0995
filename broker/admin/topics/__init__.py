"""Admin API of topics, their partitions, subscriptions, schemas and lookups."""
