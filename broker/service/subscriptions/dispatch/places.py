"""Places: where an unacknowledged entry of a Shared or Key_Shared subscription is."""

from __future__ import annotations

import enum
from typing import NamedTuple

from broker.service.consumer import Consumer


class Place(enum.StrEnum):
    """Every unacknowledged entry is in one of these places."""

    CONSUMER = "consumer"
    """Pending at a connected consumer."""
    REDELIVERY = "redelivery"
    """Waits to be delivered again."""
    DELAYED = "delayed"
    """Waits for its delivery time."""
    TRANSACTION = "transaction"
    """Acknowledged by an open transaction, whose end decides."""
    AHEAD = "ahead"
    """Stands before the cursor, which will read it."""
    FORGOTTEN = "lost"
    """In none of the others: it was read and is not being delivered, which an error in the broker alone can cause."""


class Whereabouts(NamedTuple):
    """The place of one entry."""

    place: Place
    """The place."""
    consumer: Consumer | None = None
    """The consumer at which it is pending; None in other places."""
