"""The bookie's HTTP port: metrics for Prometheus and BookKeeper's REST interface."""
