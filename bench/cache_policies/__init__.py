"""Which cache policy keeps the entries that will be read? A broker's workloads simulated under every policy."""
