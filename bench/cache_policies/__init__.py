"""Which policy keeps what will be read: workloads of a broker, replayed with a fake clock against every policy."""
