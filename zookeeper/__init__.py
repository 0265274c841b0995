"""One session with ZooKeeper for every process of ours: broker, bookie and tools connect, wait and close in one way."""
