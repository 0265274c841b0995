"""Credentials, Identity and Provider: the question that a method of proof answers, and its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from foundation.model.errors import BrokerError

ROLE_CHARACTERS_MAX: Final = 1024
"""Longest role, in characters."""
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class AuthenticationFailed(BrokerError):
    """The credentials prove nothing. The text says why and repeats no part of them."""

    code = 3
    status = 401

    def __init__(self, reason: str) -> None:
        """`reason` is one of few fixed texts, because it becomes a label of a metric."""
        super().__init__(reason)
        self.reason = reason
        """The fixed text."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A proof of its role that a client offers."""

    method: str
    """`token`, `basic`, `tls`, or another word of the client's."""
    data: bytes = field(default=b"", repr=False)
    """The token, or `name:password`. Hidden from `repr`, so that no stack trace or log line shows it."""
    host: str = ""
    """Address of the client, without its port."""
    common_name: str | None = None
    """The CN of a certificate that the TLS handshake has checked; None without one."""


class Identity(NamedTuple):
    """A role that is proven, and until when."""

    role: str | None
    """None for a token that is valid and names no role; such a client has no rights."""
    expires_at_s: float | None = None
    """Seconds since 1970 at which the proof ends; None = never."""


class Provider(Protocol):
    """A method of proof."""

    @property
    def name(self) -> str:
        """Apache's name of the class, without its package; a label of the metrics."""
        ...

    @property
    def method(self) -> str:
        """The word in CONNECT for which the provider is asked."""
        ...

    async def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the proven role. Raises AuthenticationFailed."""
        ...


def checked_role(role: str) -> str | None:
    """Returns a role that can be stored and logged; None for an empty one.

    Raises AuthenticationFailed for control characters, with which a role could forge lines of a log.
    """
    if len(role) > ROLE_CHARACTERS_MAX or _CONTROL.search(role):
        raise AuthenticationFailed("the role is too long or has control characters")
    return role or None
