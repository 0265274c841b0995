"""AuthenticationCounts: outcomes since the start, for /metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from foundation.value import Value


class AuthenticationCounts(Value):
    """Counts by the values of Pulsar's labels, in their order."""

    successes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Proven roles by class and method."""
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Failures by class, method and reason; the reasons are few fixed texts."""

    @property
    def expired(self) -> int:
        """Tokens that were refused because their time is over."""
        return sum(count for (_, _, reason), count in self.failures.items() if reason == EXPIRED)


EXPIRED = "the token has expired"
"""The reason of an expired token."""
