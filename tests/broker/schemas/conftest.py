"""A metadata store of each kind; the one in ZooKeeper needs Java."""

from tests.bookkeeper.metadata.conftest import kind, root, store

__all__ = ["kind", "root", "store"]
