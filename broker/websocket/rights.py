"""Rights of WebSocket sessions: the checks before a topic is opened, and the end of sessions that lost a right.

The middleware of the admin port has checked the topic in the path. A request may name further topics in its query, so each
topic is checked here as well.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.security.authorization.access import Access
from broker.websocket.context import SessionClient, WebSocketContext
from broker.websocket.errors import POLICY
from foundation.model.errors import BrokerError

SESSIONS_PER_SLICE = 100
"""Sessions that are looked at before the loop serves others."""


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

    def __init__(self, context: WebSocketContext, peer: SessionClient) -> None:
        self._context = context
        self._peer = peer
        self._held: list[Access] = []

    def require(self, access: Access) -> None:
        """Raises Forbidden unless the client has the access now."""
        authorizer, principal = self._context.authorizer, self._peer.principal
        if authorizer.enabled and not access.is_allowed(authorizer, principal):
            asked = _WORDS[access.action]
            self._context.audit.refused(principal, self._peer.address, asked, access.target, Forbidden.status)
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
        authorizer, principal = self._context.authorizer, self._peer.principal
        return not all(access.is_allowed(authorizer, principal) for access in self._held)


async def end_withdrawn(context: WebSocketContext) -> None:
    """Closes the sessions whose role has lost a right."""
    for count, session in enumerate(list(context.sessions)):
        if session.rights.withdrawn:
            session.end(POLICY, "the right was withdrawn")
        if count % SESSIONS_PER_SLICE == SESSIONS_PER_SLICE - 1:
            await asyncio.sleep(0)
