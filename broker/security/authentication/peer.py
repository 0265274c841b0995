"""The name in the certificate that the peer of a connection has shown."""

from __future__ import annotations

import asyncio


def common_name(transport: asyncio.BaseTransport | None) -> str | None:
    """Returns the CN of the subject; None for a peer without TLS, and for one without a checked certificate."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # Empty for a certificate that no trusted one vouches for.
    shown = None if tls is None else tls.getpeercert()
    for part in (shown or {}).get("subject", ()):
        for field, value in part:
            if field == "commonName":
                return str(value)
    return None
