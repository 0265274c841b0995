"""TxnId: the identity of one transaction, as clients and logs carry it."""

from __future__ import annotations

from typing import NamedTuple


class TxnId(NamedTuple):
    """A transaction; both numbers are unsigned and have 64 bits."""

    most: int
    """The number of the coordinator that began it."""
    least: int
    """Its number at that coordinator, from 0."""

    def __str__(self) -> str:
        return f"({self.most},{self.least})"
