"""Limbo (BP-46): ledgers of which entries may be lost. What is there is served, what is not there is unknown.

They are fenced as well, as a fence may be among what was lost. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bookie_stub.base.record import UNSET_KEY
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.ledgers.ledger import Ledger


def put_in_limbo(ledgers: Iterable[Ledger], changed: set[int]) -> None:
    """What a start still knows after a loss. `changed` gets their ids: their rows are to be written."""
    for ledger in ledgers:
        ledger.limbo = ledger.fenced = ledger.fence_durable = True
        changed.add(ledger.ledger_id)


def remember(
    ledger_ids: Iterable[int],
    ledgers: dict[int, Ledger],
    changed: set[int],
    has_deleted: Callable[[int], bool],
) -> int:
    """Ledgers that the cluster places on this bookie: those that it does not know are lost as a whole, or were never
    written here, which nobody can tell any more. Returns how many these are."""
    forgotten = [each for each in ledger_ids if each not in ledgers and not has_deleted(each)]
    for ledger_id in forgotten:
        data = LedgerData(UNSET_KEY, fenced=True, limbo=True)
        ledgers[ledger_id] = Ledger(ledger_id, data, stored=True)
    changed.update(forgotten)
    return len(forgotten)
