"""LastAudit: the result of the last audit that told this broker of it, for metrics.

The audit runs in a process of its own (`magnetar admin audit`), because it walks the whole metadata store. So a scrape costs
the broker nothing but these few numbers, which are gone after a restart until the next audit.
"""

from __future__ import annotations

from collections.abc import Mapping


class LastAudit:
    """Numbers of findings by class."""

    def __init__(self) -> None:
        """No audit has told of its result yet."""
        self.findings: Mapping[str, int] = {}
        """By class, as `magnetar admin audit` prints it; empty before the first audit."""
        self.time_s = 0.0
        """Time of the result, in seconds since the epoch; 0 before the first audit."""

    def told(self, findings: Mapping[str, int], now_ms: int) -> None:
        """Replaces the result. `now_ms`: milliseconds since the epoch."""
        self.findings = findings
        self.time_s = now_ms / 1000
