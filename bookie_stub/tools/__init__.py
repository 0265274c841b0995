"""Tools that work on a stopped bookie's files: check, dump, rebuild."""
