"""Limbo (BP-46): the state of ledgers whose entries may be lost.

An entry that is here is served; a missing entry is unknown, never absent. Such ledgers are fenced as well, because
their fence may be among the losses. Used by the start only. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bookie_stub.base.record import UNSET_KEY
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.ledgers.ledger import Ledger


def put_in_limbo(ledgers: Iterable[Ledger], changed: set[int]) -> None:
    """Fences every ledger that the start found and marks it limbo. `changed` gets their ids."""
    for ledger in ledgers:
        ledger.limbo = ledger.fenced = ledger.fence_durable = True
        changed.add(ledger.ledger_id)


def add_lost_ledgers(
    ledger_ids: Iterable[int],
    ledgers: dict[int, Ledger],
    changed: set[int],
    has_deleted: Callable[[int], bool],
) -> int:
    """Adds unknown ledgers that the cluster has on this bookie.

    Returns how many these are.

    Such a ledger was lost as a whole, or never had an entry here; both look alike, so each is fenced and in limbo. It
    accepts the first master key that is presented."""
    lost = [each for each in ledger_ids if each not in ledgers and not has_deleted(each)]
    for ledger_id in lost:
        data = LedgerData(UNSET_KEY, fenced=True, limbo=True)
        ledgers[ledger_id] = Ledger(ledger_id, data, stored=True)
    changed.update(lost)
    return len(lost)
