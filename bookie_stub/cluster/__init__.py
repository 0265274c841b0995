"""The bookie's place in ZooKeeper, and the cluster's list of ledgers."""
