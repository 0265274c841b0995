"""The bookie's HTTP port: metrics, heartbeat and BookKeeper's REST paths."""
