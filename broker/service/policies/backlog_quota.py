"""BacklogQuota: how large the backlog of a topic's slowest subscription may be, and what happens then.

A topic has up to two: by size and by age. Source of names, defaults and refusals: Apache Pulsar 4.2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.service.policies.forms import (
    Choice,
    Form,
    Structure,
    Whole,
    member,
)
from foundation.settings.keys import INT_MAX, LONG_MAX
from foundation.value import Json, Value

SIZE: Final = "destination_storage"
"""Type of a quota by bytes."""
AGE: Final = "message_age"
"""Type of a quota by the age of the oldest unacknowledged message."""
QUOTA_TYPES: Final = (SIZE, AGE)
"""Pulsar's words for both types."""

HOLD: Final = "producer_request_hold"
"""Producers are disconnected, and wait until there is room."""
EXCEPTION: Final = "producer_exception"
"""Producers are disconnected, and the application gets an error when it produces again."""
EVICTION: Final = "consumer_backlog_eviction"
"""The oldest messages are taken from the subscriptions that are too slow."""
REACTIONS: Final = (HOLD, EXCEPTION, EVICTION)
"""Pulsar's words for what happens."""


class BacklogQuota(Value):
    """The quota of one type; each type looks at its own limit."""

    size: int | None = member("limitSize", Whole(-1, LONG_MAX, LONG_MAX), None)
    """Bytes; below 0 or missing = no limit."""
    older_size: int | None = member("limit", Whole(-1, LONG_MAX, LONG_MAX), None)
    """The same under its older name, which old clients send and read."""
    age_s: int | None = member("limitTime", Whole(-1, INT_MAX), None)
    """Seconds; 0, less or missing = no limit."""
    reaction: str | None = member("policy", Choice(*REACTIONS), None)
    """Pulsar's word for the action at the limit; None = the broker's setting."""

    @property
    def size_max(self) -> int:
        """Bytes that are allowed, -1 = no limit."""
        given = self.older_size if self.size is None else self.size
        return -1 if given is None or given < 0 else given

    @property
    def age_max_s(self) -> int:
        """Seconds that are allowed, -1 = no limit."""
        return -1 if self.age_s is None or self.age_s <= 0 else self.age_s


QUOTA: Final = Structure(BacklogQuota)
"""Form of `BacklogQuota`."""


class Quotas(Form[Mapping[str, BacklogQuota]]):
    """Backlog quotas by their type."""

    def __init__(self) -> None:
        super().__init__(f"a JSON object with {' and '.join(QUOTA_TYPES)}", type="object")

    def read(self, value: Json) -> Mapping[str, BacklogQuota]:
        """Returns the quotas by type."""
        if not isinstance(value, dict) or not value.keys() <= set(QUOTA_TYPES):
            raise self.wrong_type(value)
        return {kind: QUOTA.read(quota) for kind, quota in value.items()}

    def check(self, value: Mapping[str, BacklogQuota]) -> None:
        """Refuses a limit outside of its range."""
        for quota in value.values():
            QUOTA.check(quota)

    def write(self, value: Mapping[str, BacklogQuota]) -> Json:
        """Returns the quotas as JSON."""
        return {kind: QUOTA.write(quota) for kind, quota in value.items()}
