"""ZooKeeper sessions: broker, bookie and tools connect, wait and close in one way."""
