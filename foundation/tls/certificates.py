"""Certificates: a TLS context that is made again when one of its files has changed.

Files are looked at when a connection begins: a port without new connections needs no new certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from foundation.tls.errors import TlsError
from foundation.tls.reloaded import Reloaded


class Certificates(Reloaded[ssl.SSLContext]):
    """The context of one port, or of one kind of client."""

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        files: Sequence[Path],
        *,
        check_s: float,
        now_ns: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        """Makes the first context. Raises the TlsError of `make`. Arguments as for Reloaded."""
        super().__init__(
            make, files, subject="certificates", error=TlsError, check_s=check_s, now_ns=now_ns, warn=warn
        )
