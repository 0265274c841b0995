"""The hit ratio of a running broker's cache, from the counts that it publishes."""
