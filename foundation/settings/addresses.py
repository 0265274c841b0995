"""Facts about host names and addresses that broker and bookie share."""

from __future__ import annotations

import re
from typing import Final

from foundation.settings.computed import host_name
from foundation.settings.settings import Computed, Note, Settings

LOOPBACK: Final = "127.0.0.1"
"""The address that ports are bound to unless a setting says otherwise."""
HOST: Final = r"(?a:[\w-]+(?:\.[\w-]+)*\.?|\[[0-9A-Fa-f:.]+\])"
"""Regular expression of a host that can stand in a URL before its port."""
HOST_FORM: Final = (HOST, "a host name or address without scheme, port and path; IPv6 in brackets, as [::1]")
"""The form of a key that has such a host."""
_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")


def is_loopback(host: str) -> bool:
    """Tells whether only this machine reaches the host. `host` is a name or an address, in brackets or without."""
    host = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    return host in ("localhost", "::1") or host.endswith(".localhost") or bool(_IPV4_LOOPBACK.fullmatch(host))


def advertised_host(settings: Settings) -> Computed:
    """Computes the host that others are told to connect to; may ask a name server."""
    if is_loopback(settings.str("bindAddress")):
        # The machine's name may lead to an address at which nothing listens.
        return Computed("localhost", "bindAddress is the loopback")
    return host_name(settings)


def check_addresses(settings: Settings, ports: str, *, authenticated: bool = False) -> list[Note]:
    """Notes ports that the network reaches without authentication, and an address that it cannot reach.

    `ports` names the keys of the ports; `authenticated` is True when they ask clients for credentials.
    """
    bound = settings.str("bindAddress")
    if is_loopback(bound):
        if not settings.is_set("advertisedAddress") or is_loopback(settings.str("advertisedAddress")):
            return []
        text = f"other machines cannot connect there while bindAddress={bound}; 0.0.0.0 admits all of them"
        return [Note("warning", settings.error("advertisedAddress", text).line)]
    if authenticated:
        return []
    text = (
        f"without authentication, everyone who reaches {ports} can read, write and delete everything;"
        f" bindAddress={LOOPBACK} admits this machine only"
    )
    return [Note("warning", settings.error("bindAddress", text).line)]
