"""Decides which ledgers are copied to other storage, and which leave the bookies after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.settings import OffloadRules
from foundation.units import MS_PER_SECOND


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
