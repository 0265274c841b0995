"""Tells requests that a foreign web page makes a browser send from the requests of tools.

A page of any site may make its visitor's browser send requests to this machine, in two ways:

    forged write    a form or a `text/plain` POST, which a browser sends without asking; the page cannot read the answer
    rebinding       the site's own name is made to lead to this machine, so that page and server have one origin

A write, or the opening of a WebSocket, is refused if the browser says that it comes from elsewhere (`Origin`,
`Sec-Fetch-Site`), or if it is a POST whose content type a page may send without asking. Any request is refused if its
`Host` is a name that is not the server's. An IP address as host is accepted always: a site cannot rebind an address, only
a name.

No header of CORS is ever sent, so a browser asks in vain for methods such as PUT and DELETE, and keeps answers from pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

UPLOAD: Final = 415
"""Status of a refusal for the content type alone: nothing else tells that a page sent the request."""
LOG_INTERVAL_S: Final = 60.0
"""Time between two log lines about refusals: a page may send thousands of requests."""
READS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing."""
_SAME_ORIGIN: Final = frozenset(("same-origin", "none"))
"""Values of `Sec-Fetch-Site` for a page of this server, and for the user."""
_SENT_UNASKED: Final = frozenset(("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"))
"""Content types that a page may POST to another origin without a question by its browser."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:\[\]/?#@,]+)(?::\d{0,5})?")
"""`Host` in lower case: a name or an address, and a port."""
_ADDRESS: Final = re.compile(r"\[.*\]|\d{1,3}(\.\d{1,3}){3}")
"""An IPv6 or IPv4 address in place of a name."""


class Refusal(NamedTuple):
    """The answer to a request that is refused."""

    status: int
    """HTTP status: 421 for a foreign name, 403 for a foreign page, 415 for a content type."""
    reason: str
    """Text that names the value and the remedy."""


class ForeignPages:
    """Judges the requests to one HTTP port."""

    def __init__(self, names: Iterable[str], remedy: str) -> None:
        """`names` are the host names of the server; `remedy` tells how to add one. The loopback's are known."""
        self._names = frozenset(_plain(name) for name in names)
        self._remedy = remedy
        self._refused = 0
        self._next_line_s = 0.0

    def refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Returns the refusal of a request, None for one that may pass. `headers` compare names without case."""
        # HTTP/1.0 has no Host. Tools still speak it, browsers do not.
        host = headers.get("Host", "").lower()
        if host and not self._is_own(host):
            return Refusal(
                421, f"Host {host[:100]!r} is no name of this server: use an address, or {self._remedy}"
            )
        # A browser asks no one before it opens a WebSocket to another origin, and shows the page all that it receives.
        if method in READS and headers.get("Upgrade", "").lower() != "websocket":
            return None
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        foreign = origin is not None and origin.lower().partition("://")[2] != (host or "no host")
        if foreign or site not in _SAME_ORIGIN:
            return Refusal(403, f"A page of {(origin or site)[:100]!r} may not change anything here")
        content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if method == "POST" and content_type in _SENT_UNASKED:
            return Refusal(UPLOAD, f"Content-Type {content_type!r} is not accepted: send application/json")
        return None

    def count(self, now_s: float) -> int:
        """Counts a refusal. Returns the number that a log line should tell of now, 0 while it is too early."""
        self._refused += 1
        if now_s < self._next_line_s:
            return 0
        self._next_line_s = now_s + LOG_INTERVAL_S
        told, self._refused = self._refused, 0
        return told

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["host"]
        if _ADDRESS.fullmatch(name):
            return True
        name = _plain(name)
        return name == "localhost" or name.endswith(".localhost") or name in self._names


def _plain(name: str) -> str:
    """Returns a host name as it is compared: in lower case, without the dot that may end a full name."""
    return name.lower().removesuffix(".")
