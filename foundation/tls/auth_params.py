"""Parameters of Pulsar's AuthenticationTls plugin: the files of the client's certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

PLUGINS: Final = ("org.apache.pulsar.client.impl.auth.AuthenticationTls", "AuthenticationTls", "tls")
"""Names of the plugin: that of Java's class, its end, and that of the C++ client."""


class ClientCertificate(NamedTuple):
    """The files by which a client proves its identity."""

    certificate: Path
    """PEM."""
    key: Path
    """PEM."""


def parse_auth_params(text: str) -> ClientCertificate:
    """Returns the files in `tlsCertFile:PATH,tlsKeyFile:PATH` or the same names as JSON. Raises ValueError."""
    if text.lstrip().startswith("{"):
        found = json.loads(text)
    else:
        found = dict(part.strip().split(":", 1) for part in text.split(",") if ":" in part)
    try:
        return ClientCertificate(Path(found["tlsCertFile"]), Path(found["tlsKeyFile"]))
    except (KeyError, TypeError):
        raise ValueError("tlsCertFile:PATH,tlsKeyFile:PATH is expected") from None
