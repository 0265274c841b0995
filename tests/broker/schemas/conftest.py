"""A metadata store of each kind; the one in ZooKeeper needs Java."""

from tests.broker.metadata.conftest import root, store

__all__ = ["root", "store"]
