"""The name in the certificate that the peer of a connection has shown."""

from __future__ import annotations

import asyncio


def common_name(transport: asyncio.BaseTransport | None) -> str | None:
    """Returns the CN of the subject, which Pulsar's TLS authentication takes as the role.

    None without TLS, without a certificate that a trusted one vouches for, and without a CN. Of several the most specific
    one counts, which stands last.
    """
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # Empty for a peer without a certificate, and for one whose certificate was not checked.
    shown = None if tls is None else tls.getpeercert()
    # From the end, as Java writes a subject: Pulsar takes the first CN of that text.
    for part in reversed((shown or {}).get("subject", ())):
        for field, value in part:
            if field == "commonName" and value:
                return str(value)
    return None
