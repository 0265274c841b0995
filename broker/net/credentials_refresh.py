"""CredentialsRefresh: ends a connection whose credentials have expired, after a chance to renew them.

```
          expiry                       authenticationRefreshCheckSeconds
VALID --------------> CHALLENGED ---------------------------------------> closed
  ^   AUTH_CHALLENGE      |
  +-- AUTH_RESPONSE ------+
```

A client without support for AUTH_CHALLENGE is closed at the expiry. Pulsar looks every
`authenticationRefreshCheckSeconds` and so notices an expiry up to that much later.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.net.connection_context import ConnectionContext
from broker.security.authentication.authenticator import Authenticator
from protocol import answers

LOOK_S_MAX: Final = 600.0
"""Longest time between two looks at the clock, which may be set meanwhile."""


class RefreshedConnection(Protocol):
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

    def close(self, reason: str) -> None:
        """Writes waiting frames and closes; `reason` is logged."""
        ...


class CredentialsRefresh:
    """The expiry of one connection's credentials."""

    __slots__ = (
        "_authenticator",
        "_cnx",
        "_context",
        "_expires_at_s",
        "_method",
        "_supported",
        "_timer",
        "challenged",
    )

    def __init__(self, context: ConnectionContext, cnx: RefreshedConnection) -> None:
        self.challenged = False
        """True while the client owes an AUTH_RESPONSE."""
        self._context = context
        self._cnx = cnx
        self._authenticator: Authenticator | None = None
        self._supported = False
        self._method = ""
        self._expires_at_s: float | None = None
        self._timer: object = None

    def watch(
        self, authenticator: Authenticator, method: str, expires_at_s: float | None, *, supported: bool
    ) -> None:
        """Watches credentials that were accepted with CONNECT.

        `expires_at_s` is in seconds since 1970, None = never; `supported`: the client can answer AUTH_CHALLENGE.
        """
        self._authenticator, self._method, self._supported = authenticator, method, supported
        self.renew(expires_at_s)

    def renew(self, expires_at_s: float | None) -> None:
        """Takes the expiry of newer credentials."""
        self.detach()
        self.challenged = False
        self._expires_at_s = expires_at_s
        self._look()

    def detach(self) -> None:
        """Stops the timer."""
        # `call_later` of a context may return any object; a test's list of timers returns None.
        cancel = getattr(self._timer, "cancel", None)
        if cancel is not None:
            cancel()

    def _look(self) -> None:
        authenticator, expires_at_s = self._authenticator, self._expires_at_s
        if authenticator is None or expires_at_s is None or not self._cnx.is_open:
            return
        left_s = expires_at_s - authenticator.wall_s()
        if left_s > 0:
            self._timer = self._context.call_later(min(left_s, LOOK_S_MAX), self._look)
            return
        chance_s = authenticator.settings.refresh_s
        if not self._supported or not chance_s:
            self._cnx.close("its credentials have expired")
            return
        self.challenged = True
        self._cnx.send(
            answers.auth_challenge(self._context.server_version, self._cnx.protocol_version, self._method)
        )
        self._timer = self._context.call_later(chance_s, self._end)

    def _end(self) -> None:
        if self.challenged:
            self._cnx.close("its credentials have expired, and no AUTH_RESPONSE came")
