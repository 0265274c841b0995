"""`metadataStoreUrl` of a store in ZooKeeper: `zk:host:port,host:port/chroot`. Pure: no I/O."""

from __future__ import annotations

from typing import NamedTuple

SCHEME = "zk:"


class ZookeeperUrl(NamedTuple):
    hosts: str
    """host:port, comma between several."""
    root: str
    """The chroot: path under which every key lies, without a slash at its end; "" = the top."""

    def __str__(self) -> str:
        return f"{SCHEME}{self.hosts}{self.root}"


def parse_zookeeper_url(text: str) -> ZookeeperUrl | None:
    """None for a URL of another store. ValueError says what is allowed."""
    if not text.startswith(SCHEME):
        return None
    hosts, _, path = text.removeprefix(SCHEME).removeprefix("//").partition("/")
    names = [host.strip() for host in hosts.replace(";", ",").split(",")]
    parts = path.rstrip("/").split("/") if path else []
    if not all(names) or not all(parts):
        raise ValueError("allowed is zk:host:port[,host:port][/chroot]")
    return ZookeeperUrl(",".join(names), "".join(f"/{part}" for part in parts))
