"""ZooKeeper's servers and a cluster's root, parsed from settings.

Pure: no I/O. Settings have two forms:

    zk:host:port,host:port/chroot                   Pulsar's metadataStoreUrl
    zk+hierarchical://host:port;host:port/ledgers   BookKeeper's metadataServiceUri

Both separators between servers are read in both forms, and spaces around a server are dropped.
"""

from __future__ import annotations

from typing import NamedTuple

_STORE_SCHEME = "zk:"
_SERVICE_SCHEMES = ("zk", "zk+null", "zk+hierarchical", "zk+longhierarchical")
"""BookKeeper's schemes that lay ledgers out in its default way; a bookie's own nodes are the same in all of them."""


class ZookeeperUrl(NamedTuple):
    """The servers of a ZooKeeper, and a cluster's root node."""

    hosts: str
    """host:port of each server, with commas between."""
    root: str
    """The chroot: the path above every key, without a slash at its end; "" = the top."""

    def __str__(self) -> str:
        return f"{_STORE_SCHEME}{self.hosts}{self.root}"


def parse_store_url(text: str) -> ZookeeperUrl | None:
    """Parses the value of `metadataStoreUrl`; returns None for a store of another kind.

    Raises ValueError with the allowed form.
    """
    if not text.startswith(_STORE_SCHEME):
        return None
    url = _parsed(text.removeprefix(_STORE_SCHEME).removeprefix("//"))
    if url is None:
        raise ValueError("allowed is zk:host:port[,host:port][/chroot]")
    return url


def parse_service_uri(text: str) -> ZookeeperUrl:
    """Parses the value of `metadataServiceUri`, whose path is required. Raises ValueError with the allowed form."""
    scheme, separator, rest = text.partition("://")
    url = _parsed(rest)
    if not separator or scheme not in _SERVICE_SCHEMES or url is None or not url.root:
        raise ValueError(f"allowed is {'|'.join(_SERVICE_SCHEMES)}://host:port[;host:port]/path")
    return url


def _parsed(rest: str) -> ZookeeperUrl | None:
    hosts, _, path = rest.partition("/")
    names = [host.strip() for host in hosts.replace(";", ",").split(",")]
    parts = path.rstrip("/").split("/") if path else []
    if not all(names) or not all(parts):
        return None
    return ZookeeperUrl(",".join(names), "".join(f"/{part}" for part in parts))
