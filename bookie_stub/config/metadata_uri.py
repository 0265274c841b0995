"""`metadataServiceUri`: the address of the metadata store that bookies and their clients share. Pure: no I/O."""

from __future__ import annotations

from typing import NamedTuple

SCHEMES = ("zk", "zk+null", "zk+hierarchical", "zk+longhierarchical")
"""Layouts of ledger metadata; the bookie's own part of the store is the same in all of them."""


class MetadataUri(NamedTuple):
    """Hosts of ZooKeeper, and the path of one cluster in it."""

    hosts: str
    """host:port, comma between several."""
    root: str
    """Path above all nodes of the cluster, without a slash at its end."""


def parse_metadata_uri(text: str) -> MetadataUri:
    """Parses `zk+hierarchical://host:2181;host:2181/ledgers`. Raises ValueError, whose text says what is allowed."""
    scheme, separator, rest = text.partition("://")
    hosts, slash, path = rest.partition("/")
    names = [host.strip() for host in hosts.replace(";", ",").split(",")]
    if not separator or scheme not in SCHEMES or not all(names) or not slash or not path.strip("/"):
        raise ValueError(f"allowed is {'|'.join(SCHEMES)}://host:port[;host:port]/path")
    return MetadataUri(",".join(names), "/" + path.strip("/"))
