"""Topics: open ones and their registry, access of producers, deduplication, schemas, lists of names."""
