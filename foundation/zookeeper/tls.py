"""TLS towards ZooKeeper: the names of ZooKeeper's own client, and their files.

Pulsar's Java processes get these names as system properties. Here they stand in the file of `metadataStoreConfigPath`:

    zookeeper.client.secure=true
    zookeeper.ssl.trustStore.location=authority.pem
    zookeeper.ssl.keyStore.location=client.pem         (the certificate and its key in one file)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_SECURE: Final = "zookeeper.client.secure"
_TRUST: Final = "zookeeper.ssl.trustStore.location"
_STORE: Final = "zookeeper.ssl.keyStore.location"
_PASSWORD: Final = "zookeeper.ssl.keyStore.password"
_HOST_NAME: Final = "zookeeper.ssl.hostnameVerification"
_TYPES: Final = ("zookeeper.ssl.trustStore.type", "zookeeper.ssl.keyStore.type")
_SOCKET: Final = "zookeeper.clientCnxnSocket"
"""Java's class for connections, which TLS needs there; it has no effect here."""
NAMES: Final = (_SECURE, _TRUST, _STORE, _PASSWORD, _HOST_NAME, *_TYPES, _SOCKET)
"""All names that are read."""


class ZookeeperTls(NamedTuple):
    """How connections to ZooKeeper are protected."""

    trusted: Path | None
    """Certificates that vouch for servers besides those of the operating system, PEM."""
    certificate: Path | None
    """The client's certificate and its key in one file, PEM; None = it shows none."""
    password: str
    """Password of the key; empty = it is not encrypted."""
    checks_host_name: bool
    """Compare the name in a server's certificate with its address."""


def parse_tls(values: Mapping[str, str]) -> ZookeeperTls | None:
    """Returns the protection that a file's names and values ask for; None without `zookeeper.client.secure=true`.

    Raises ValueError, whose text names the line's name and the remedy.
    """
    for name in values:
        if name not in NAMES:
            raise ValueError(f"{name} is not read: allowed are {', '.join(NAMES)}")
    for name in _TYPES:
        if values.get(name, "PEM").upper() != "PEM":
            raise ValueError(f"{name}={values[name]}: allowed is PEM")
    if not _flag(values, _SECURE, default=False):
        asking = [name for name in (_TRUST, _STORE) if values.get(name)]
        if asking:
            raise ValueError(f"{asking[0]} asks for TLS, which is off: set {_SECURE}=true or remove it")
        return None
    return ZookeeperTls(
        trusted=_path(values, _TRUST),
        certificate=_path(values, _STORE),
        password=values.get(_PASSWORD, ""),
        checks_host_name=_flag(values, _HOST_NAME, default=True),
    )


def _path(values: Mapping[str, str], name: str) -> Path | None:
    return Path(values[name]) if values.get(name) else None


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, "").lower() or str(default).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name}={values[name]}: allowed is true or false")
    return text == "true"
