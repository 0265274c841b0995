"""BookKeeper's result codes as the ledger client sorts them, and the broker's error for each."""

from __future__ import annotations

from broker.model.errors import (
    BrokerError,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    PersistenceError,
)
from protocol.bookie_frame import (
    RC_FENCED,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_UNAUTHORIZED,
)

OK = RC_OK
NOT_ENOUGH_BOOKIES = -6
"""Never on the wire: the number that BookKeeper's own client has for it."""
NEGATIVE = (RC_NO_LEDGER, RC_NO_ENTRY)
"""The bookie is sure not to have the entry. Everything else that is not OK proves nothing."""
FENCED = (RC_UNAUTHORIZED, RC_FENCED)
"""Somebody else has the ledger; its writer must stop for good."""

_ERRORS: dict[int, type[PersistenceError]] = {
    RC_NO_LEDGER: NoSuchLedger,
    RC_NO_ENTRY: NoSuchEntry,
    RC_UNAUTHORIZED: LedgerFenced,
    RC_FENCED: LedgerFenced,
}


def error_of(rc: int, what: str) -> BrokerError:
    """The error for a result code of the ledger client that is not OK."""
    if rc == NOT_ENOUGH_BOOKIES:
        return NotEnoughBookies(f"{what}: a bookie failed and no other can take its place")
    return _ERRORS.get(rc, PersistenceError)(f"{what}: bookie answered {rc}")
