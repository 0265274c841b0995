"""The errors of the kit."""

from __future__ import annotations


class KitError(Exception):
    """Something that a test asked of the broker cannot be done; the text has the broker's reason."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        """HTTP status of the answer; None without one."""


class BrokerFailedError(KitError):
    """The broker did not start, or has ended by itself; the text ends with the last lines of its log."""
