"""Names of protocols and of cipher suites: Java's as Pulsar's settings have them, and OpenSSL's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from foundation.tls.errors import TlsError

PROTOCOLS: Final = ("TLSv1.3", "TLSv1.2")
"""The protocols that may be chosen; older ones are broken, and Pulsar leaves them out by default too."""
TLS13_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3, which have one name everywhere."""


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a suite of TLS 1.2.

    `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` becomes `ECDHE-RSA-AES128-GCM-SHA256`. A name without `_WITH_` is
    OpenSSL's already.
    """
    exchange, with_, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not with_:
        return name
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher)
    # OpenSSL leaves the mode CBC and the hash of ChaCha20 out of its names.
    cipher = cipher.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    # The plain exchange by RSA has no word of its own either.
    return "-".join(part.replace("_", "-") for part in (exchange, cipher) if part != "RSA")


def check_ciphers(names: Sequence[str]) -> None:
    """Raises TlsError when only some suites of TLS 1.3 are named: Python's library cannot leave one of them out."""
    newer = [name for name in names if name in TLS13_SUITES]
    unknown = [
        name for name in names if re.fullmatch(r"TLS_(?!.*_WITH_).*", name) and name not in TLS13_SUITES
    ]
    if unknown:
        raise TlsError(f"{unknown[0]} is no cipher of TLS 1.3: those are {', '.join(TLS13_SUITES)}")
    if newer and len(set(newer)) < len(TLS13_SUITES):
        missing = ", ".join(name for name in TLS13_SUITES if name not in newer)
        raise TlsError(
            f"ciphers of TLS 1.3 cannot be chosen one by one here: name {missing} too, or none of them"
        )
