"""CredentialsRefresh: ends a connection whose credentials have expired, after a chance to renew them.

```
          expiry                       authenticationRefreshCheckSeconds
VALID --------------> CHALLENGED ---------------------------------------> closed
  ^   AUTH_CHALLENGE      |
  +-- AUTH_RESPONSE ------+
```

A connection through a proxy may have two credentials: its own and those of the original client. The ones that expire first
are asked for, and an answer renews these alone.

A client without support for AUTH_CHALLENGE is closed at the expiry. Pulsar looks every
`authenticationRefreshCheckSeconds` and so notices an expiry up to that much later.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Protocol

from broker.net.connection_context import ConnectionContext, OpenConnection
from broker.security.authentication.authenticator import Authenticator
from protocol import answers

LOOK_S_MAX: Final = 600.0
"""Longest time between two readings of the clock, which may be set meanwhile."""


class RefreshedConnection(OpenConnection, Protocol):
    """A client's connection as this module uses it."""

    protocol_version: int
    """The lower one of the client's and ours."""

    @property
    def is_open(self) -> bool:
        """False once the connection is lost."""
        ...

    def send(self, frame: bytes) -> None:
        """Adds a frame to the outbox."""
        ...


@dataclass(slots=True, eq=False)
class Accepted:
    """Credentials that were accepted with CONNECT."""

    method: str
    """The method's word in CONNECT and in AUTH_CHALLENGE."""
    role: str | None
    """The role that they prove; newer credentials must prove the same one."""
    expires_at_s: float | None
    """Expiry of the newest credentials in seconds since 1970; None = never."""
    original: bool = False
    """True for those of a client behind a proxy, which come without a certificate of this connection."""


class CredentialsRefresh:
    """The expiry of one connection's credentials."""

    __slots__ = (
        "_accepted",
        "_authenticator",
        "_cnx",
        "_context",
        "_supported",
        "_timer",
        "challenged",
    )

    def __init__(self, context: ConnectionContext, cnx: RefreshedConnection) -> None:
        self.challenged: Accepted | None = None
        """The credentials that an AUTH_RESPONSE must renew; None while the client owes no such answer."""
        self._context = context
        self._cnx = cnx
        self._authenticator: Authenticator | None = None
        self._supported = False
        self._accepted: list[Accepted] = []
        self._timer: object = None

    def watch(self, authenticator: Authenticator, accepted: list[Accepted], *, supported: bool) -> None:
        """Watches credentials that were accepted with CONNECT; `supported`: the client can answer AUTH_CHALLENGE."""
        self._authenticator, self._accepted, self._supported = authenticator, accepted, supported
        self._look()

    def renew(self, accepted: Accepted, expires_at_s: float | None) -> None:
        """Takes the expiry of newer credentials of the same role."""
        self.detach()
        self.challenged = None
        accepted.expires_at_s = expires_at_s
        self._look()

    def detach(self) -> None:
        """Stops the timer."""
        # `call_later` of a context may return any object; a test's list of timers returns None.
        cancel = getattr(self._timer, "cancel", None)
        if cancel is not None:
            cancel()

    def _look(self) -> None:
        authenticator = self._authenticator
        expiries = [(one.expires_at_s, one) for one in self._accepted if one.expires_at_s is not None]
        if authenticator is None or not expiries or not self._cnx.is_open:
            return
        expires_at_s, first = min(expiries, key=itemgetter(0))
        left_s = expires_at_s - authenticator.wall_s()
        if left_s > 0:
            self._timer = self._context.due_later(min(left_s, LOOK_S_MAX), self._look)
            return
        chance_s = authenticator.settings.refresh_s
        if not self._supported or not chance_s:
            self._cnx.close("its credentials have expired")
            return
        self.challenged = first
        self._cnx.send(
            answers.auth_challenge(self._context.server_version, self._cnx.protocol_version, first.method)
        )
        self._timer = self._context.call_later(chance_s, self._end)

    def _end(self) -> None:
        if self.challenged is not None:
            self._cnx.close("its credentials have expired, and no AUTH_RESPONSE came")
