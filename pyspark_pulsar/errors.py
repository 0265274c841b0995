"""The exceptions of source and sink.

Most are raised in a Python worker and pickled to the driver. Those whose constructor takes other arguments than
`Exception`'s define `__reduce__`, because unpickling calls the class with `args` and would fail with a TypeError.
"""

from __future__ import annotations

from typing import ClassVar


class PulsarSourceError(Exception):
    """Base class of this package's exceptions."""


class OptionError(PulsarSourceError, ValueError):
    """An unknown option or an impossible value; the text names the option and the remedy."""


class BrokerRefused(PulsarSourceError):
    """A request that the broker answered with an error."""

    speaker: ClassVar[str] = "the broker"
    """The side that refused, for the error's text."""

    def __init__(self, doing: str, code: str, message: str) -> None:
        super().__init__(f"{doing}: {self.speaker} says {code}: {message}")
        self.doing = doing
        """The request as a participle: "looking up TOPIC"."""
        self.code = code
        """Name in the protocol's enum ServerError, for example "TopicNotFound"."""
        self.message = message
        """The broker's own text."""

    def __reduce__(self) -> tuple[type[BrokerRefused], tuple[str, str, str]]:
        return type(self), (self.doing, self.code, self.message)


class IssuerRefused(BrokerRefused):
    """A request for a token that its issuer refused, or did not answer; no broker was asked."""

    speaker = "the issuer"


class BrokerLost(PulsarSourceError):
    """A connection that failed to open or ended; the same request may succeed on a new one."""


class TlsRefused(PulsarSourceError):
    """A TLS handshake that client or broker refused; the same files would be refused again."""


class MalformedEntry(PulsarSourceError):
    """An entry or value with wrong bytes: a false checksum, sizes that do not add up, another schema."""


class DataLoss(PulsarSourceError):
    """Messages that the query was to read are not on the broker any more."""

    def __init__(self, topic: str, reason: str, wanted: str, found: str) -> None:
        self.topic = topic
        """Full name of the topic or partition."""
        self.reason = reason
        """Either "topic deleted" or "ledger trimmed"."""
        self.wanted = wanted
        """`ledger:entry` after which the query was to read, or "the beginning"."""
        self.found = found
        """`ledger:entry` of the next message that exists, or empty."""
        rest = f"; the next message that exists is {found}" if found else ""
        super().__init__(
            f"data loss, {reason}: {topic} does not have the messages from {wanted} on any more{rest}. "
            "Set failOnDataLoss=false to continue without them, or use a new checkpoint to start over."
        )

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, str, str, str]]:
        return type(self), (self.topic, self.reason, self.wanted, self.found)
