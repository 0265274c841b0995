"""What is left over, missing or too old in a cluster, found in a snapshot of its metadata. Nothing is ever deleted."""
