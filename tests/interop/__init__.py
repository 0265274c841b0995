"""Official Pulsar clients, unmodified, against the broker as a process of its own."""
