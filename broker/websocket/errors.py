"""Refusals of the WebSocket API, and the numbers and close codes that clients see."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from foundation.model.errors import BrokerError


class InvalidQuery(BrokerError):
    """A parameter or the path of the request is wrong."""

    status = 400

    def __init__(self, reason: str) -> None:
        """`reason` names the value; the words in front of it are Pulsar's."""
        super().__init__(f"Invalid query params: {reason}")


class SendError(IntEnum):
    """Numbers after `send-error:` in the answer to a message, Pulsar's."""

    JSON = 3
    """The text is no JSON of the right form."""
    PAYLOAD = 7
    """The payload, or a time, cannot be decoded."""
    UNKNOWN = 8
    """The broker did not store the message."""


class Refused(Exception):
    """A message is not published; the session goes on."""

    context: str | None = None
    """The client's own mark of the message."""

    def __init__(self, number: SendError, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        """Kind of the error."""


class BadCommand(Exception):
    """A consumer's text cannot be understood; the session ends."""


GOING_AWAY: Final = 1001
"""Close code: the broker stops, or the session was idle."""
POLICY: Final = 1008
"""Close code: a right was withdrawn, or the credentials have expired."""
BROKEN: Final = 1011
"""Close code: a consumer's text cannot be understood, as in Pulsar."""
RESTART: Final = 1012
"""Close code: the topic was closed, moved or reset here; the client connects again."""
