"""`metadataServiceUri`: where the cluster keeps what bookies and their clients share. Pure: no I/O."""

from __future__ import annotations

from typing import NamedTuple

SCHEMES = ("zk", "zk+null", "zk+hierarchical", "zk+longhierarchical")
"""Those that lay ledgers out as BookKeeper does by default. A bookie's part of the store is the same in all."""


class MetadataUri(NamedTuple):
    hosts: str
    """host:port, comma between several."""
    root: str
    """Path under which everything lies; no slash at its end."""


def parse_metadata_uri(text: str) -> MetadataUri:
    """`zk+hierarchical://host:2181;host:2181/ledgers`. ValueError says what is allowed."""
    scheme, separator, rest = text.partition("://")
    hosts, slash, path = rest.partition("/")
    names = [host.strip() for host in hosts.replace(";", ",").split(",")]
    if not separator or scheme not in SCHEMES or not all(names) or not slash or not path.strip("/"):
        raise ValueError(f"allowed is {'|'.join(SCHEMES)}://host:port[;host:port]/path")
    return MetadataUri(",".join(names), "/" + path.strip("/"))
