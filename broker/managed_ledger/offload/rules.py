"""Decides which ledgers are copied to other storage, and which leave the bookies after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.settings import OffloadRules
from foundation.units import MS_PER_SECOND

NEVER: Final = -1
"""In the place of a time: there is no such ledger."""


def ledgers_to_offload(infos: Iterable[LedgerInfo], rules: OffloadRules, now_ms: int) -> list[int]:
    """Returns the closed ledgers that are due, the oldest first.

    By size, as Pulsar: the newest ledgers stay as long as they and the current one have no more than the threshold.
    """
    due: set[int] = set()
    total = 0
    for info in reversed(list(infos)):
        total += info.size_bytes
        if info.closed_at_ms is None or info.is_offloaded:
            continue
        too_many = 0 <= rules.threshold_bytes < total
        # Pulsar takes 0 seconds as "at once", too.
        too_old = 0 <= rules.threshold_s * MS_PER_SECOND <= now_ms - info.closed_at_ms
        if too_many or too_old:
            due.add(info.ledger_id)
    return sorted(due)


def ledgers_to_drop(infos: Iterable[LedgerInfo], rules: OffloadRules, now_ms: int) -> list[LedgerInfo]:
    """Returns the copied ledgers whose time in the bookies is over."""
    return [
        info
        for info in infos
        if info.offload is not None
        and info.offload.complete
        and not info.offload.bookkeeper_deleted
        and 0 <= rules.deletion_lag_ms <= now_ms - info.offload.at_ms
    ]


class OffloadTimes(NamedTuple):
    """The part of a list of ledgers from which the next copy or deletion follows, while no entry is added."""

    closed_ms: int = NEVER
    """When the first ledger was closed that has no copy."""
    size_bytes: int = 0
    """Of that ledger and all after it."""
    copied_ms: int = NEVER
    """When the first copy was made of those whose ledger is in the bookies too."""

    @classmethod
    def of(cls, infos: Sequence[LedgerInfo]) -> OffloadTimes:
        """Returns the times of a list."""
        closed = [place for place, one in enumerate(infos) if one.closed_at_ms and not one.is_offloaded]
        copied = [
            one.offload.at_ms
            for one in infos
            if one.offload is not None and one.offload.complete and not one.offload.bookkeeper_deleted
        ]
        return cls(
            min((infos[place].closed_at_ms or 0 for place in closed), default=NEVER),
            sum(one.size_bytes for one in infos[closed[0] :]) if closed else 0,
            min(copied, default=NEVER),
        )

    def due_ms(self, rules: OffloadRules, now_ms: int) -> int:
        """Returns when `ledgers_to_offload` or `ledgers_to_drop` names a ledger, or NEVER."""
        due: list[int] = []
        if self.closed_ms != NEVER and rules.place.driver:
            if 0 <= rules.threshold_bytes < self.size_bytes:
                due.append(now_ms)
            if rules.threshold_s >= 0:
                due.append(self.closed_ms + rules.threshold_s * MS_PER_SECOND)
        if self.copied_ms != NEVER and rules.deletion_lag_ms >= 0:
            due.append(self.copied_ms + rules.deletion_lag_ms)
        return min(due, default=NEVER)
