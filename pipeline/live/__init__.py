"""The hit ratio of a running broker's cache, from its published counts."""
