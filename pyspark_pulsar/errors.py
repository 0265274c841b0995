"""What can go wrong, each with one sentence that says what to do."""

from __future__ import annotations


class PulsarSourceError(Exception):
    """The base of all that this package raises on its own account."""


class OptionError(PulsarSourceError, ValueError):
    """An option that does not exist, or a value that cannot be; the text names the option and the remedy."""


class BrokerRefused(PulsarSourceError):
    """A request that the broker answered with an error."""

    def __init__(self, doing: str, code: str, message: str) -> None:
        super().__init__(f"{doing}: the broker says {code}: {message}")
        self.doing = doing
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[BrokerRefused], tuple[str, str, str]]:
        return type(self), (self.doing, self.code, self.message)


class BrokerLost(PulsarSourceError):
    """A connection that could not be made, or that ended; worth another try."""


class MalformedEntry(PulsarSourceError):
    """Bytes of an entry that are no messages: wrong checksum, sizes that do not add up."""


class DataLoss(PulsarSourceError):
    """Messages that the query was to read are not on the broker any more.

    `reason` is one of "topic deleted" and "ledger trimmed"; `wanted` and `found` are "ledger:entry" or "".
    """

    def __init__(self, topic: str, reason: str, wanted: str, found: str) -> None:
        self.topic = topic
        self.reason = reason
        self.wanted = wanted
        self.found = found
        rest = f"; the next that is there is {found}" if found else ""
        super().__init__(
            f"data loss, {reason}: {topic} has no more what the query was to read from {wanted} on{rest}. "
            "Set failOnDataLoss=false to go on without it, or use a new checkpoint to start over."
        )

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, str, str, str]]:
        return type(self), (self.topic, self.reason, self.wanted, self.found)
