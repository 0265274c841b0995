"""Write cache, entry logs, indexes, checkpoints and the read cache."""
