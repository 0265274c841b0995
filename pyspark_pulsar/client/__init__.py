"""The wire towards a cluster: blocking connections, and the questions a client asks."""
