"""Rights of WebSocket sessions: the checks before a topic is opened, and whether a session has lost a right.

The middleware of the admin port has checked the topic in the path. A request may name further topics in its query, so each
topic is checked here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.security.audit import AuditTrail
from broker.security.authorization.access import Access
from broker.security.authorization.authorizer import Authorizer
from broker.security.principal import Principal
from foundation.model.errors import BrokerError


def _drop_nothing() -> None:
    """Stands for a connection that is gone already."""


class SessionClient(NamedTuple):
    """The client of a session."""

    address: str
    """`host:port`"""
    principal: Principal
    """Its roles; NOBODY without authentication."""
    expires_at_s: float | None = None
    """Seconds since 1970 at which the proof of its roles ends; None = never."""
    drop: Callable[[], None] = _drop_nothing
    """Closes the connection at once, with all that was not sent. The default does nothing."""


class Forbidden(BrokerError):
    """The role lacks the right; Pulsar's status for a WebSocket."""

    status = 403


_WORDS: Final = {
    "produce": "WebSocket producer",
    "consume": "WebSocket consumer",
    "list": "WebSocket topicsPattern",
}
"""Names of actions in refusals and in the audit trail."""


class SessionRights:
    """The accesses of one session."""

    def __init__(self, authorizer: Authorizer, audit: AuditTrail, peer: SessionClient) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._peer = peer
        self._held: list[Access] = []

    def require(self, access: Access) -> None:
        """Raises Forbidden unless the client has the access now; ServiceNotReady while rights are not in force."""
        authorizer, principal = self._authorizer, self._peer.principal
        authorizer.check_confirmed()
        if authorizer.enabled and not access.is_allowed(authorizer, principal):
            asked = _WORDS[access.action]
            self._audit.refused(principal, self._peer.address, asked, access.target, Forbidden.status)
            raise Forbidden(
                f"Not authorized: {asked} of {access.target}; an administrator of the tenant grants the right"
            )

    def hold(self, access: Access) -> None:
        """Checks the access as `require`; the session ends when the access is withdrawn."""
        self.require(access)
        self._held.append(access)

    @property
    def withdrawn(self) -> bool:
        """True when an access that the session holds was withdrawn."""
        authorizer, principal = self._authorizer, self._peer.principal
        return not all(access.is_allowed(authorizer, principal) for access in self._held)
