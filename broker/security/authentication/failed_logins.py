"""FailedLogins: slows down addresses that fail to prove a role again and again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

FREE: Final = 10
"""Failures of an address that are answered at once."""
STEP_NS: Final = 100 * 10**6
"""Each further failure delays its answer by so much more."""
DELAY_NS_MAX: Final = 5 * 10**9
"""Longest delay of an answer."""
FORGIVEN_NS: Final = 10 * 10**9
"""Quiet time after which one failure of an address is forgotten; n failures take n times as long."""
COUNT_MAX: Final = FREE + DELAY_NS_MAX // STEP_NS
"""Failures that are counted for an address."""
HOSTS_MAX: Final = 10_000
"""Addresses that are remembered; those that failed longest ago are forgotten first."""


class FailedLogins:
    """Counts failures by address. Pure: the caller waits."""

    def __init__(self) -> None:
        # Address -> (failures, when the last one was); the last failure stands at the end.
        self._hosts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def failed(self, host: str, now_ns: int) -> int:
        """Counts a failure and returns the nanoseconds by which its answer is to be delayed."""
        count, last_ns = self._hosts.get(host, (0, now_ns))
        count = min(max(0, count - (now_ns - last_ns) // FORGIVEN_NS) + 1, COUNT_MAX)
        self._hosts[host] = count, now_ns
        self._hosts.move_to_end(host)
        if len(self._hosts) > HOSTS_MAX:
            self._hosts.popitem(last=False)
        return min(max(0, count - FREE) * STEP_NS, DELAY_NS_MAX)
