"""A metadata store of each kind; the one in ZooKeeper needs Java."""

from tests.bookkeeper.metadata.conftest import root, store

__all__ = ["root", "store"]
