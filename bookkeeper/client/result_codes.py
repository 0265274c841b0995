"""BookKeeper's result codes: what each proves, and the broker's error.

BookKeeper's names: BookieProtocol for the codes on the wire, BKException.Code for its client's own.
"""

from __future__ import annotations

from foundation.model.errors import (
    BrokerError,
    EntryDamaged,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    PersistenceError,
)
from protocol.bookie_frame import (
    RC_FENCED,
    RC_IO_ERROR,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_UNAUTHORIZED,
)

OK = RC_OK
NOT_ENOUGH_BOOKIES = -6
"""Never on the wire: the number in BookKeeper's own client (NotEnoughBookiesException)."""
UNREACHABLE = -8
"""Never on the wire: the request got no answer, which proves nothing (BookieHandleNotAvailableException).

With the wire's code for a failed disk in its place, a bookie that starts again would look as if it had lost its entries.
"""
NEGATIVE = (RC_NO_LEDGER, RC_NO_ENTRY)
"""The bookie certainly does not have the entry. Every other code except OK proves nothing."""
DAMAGED = RC_IO_ERROR
"""To a read: the bookie has the entry, and its disk does not give it."""
FENCED = (RC_UNAUTHORIZED, RC_FENCED)
"""Another process has taken the ledger over; its writer must stop for good."""

_ERRORS: dict[int, type[PersistenceError]] = {
    RC_NO_LEDGER: NoSuchLedger,
    RC_NO_ENTRY: NoSuchEntry,
    RC_UNAUTHORIZED: LedgerFenced,
    RC_FENCED: LedgerFenced,
}


def error_of_read(rc: int, what: str) -> BrokerError:
    """Returns the error for the result code of a read other than OK.

    `what`: the request and the bookie, for the text.
    """
    if rc == DAMAGED:
        return EntryDamaged(f"{what}: bookie answered {rc}, an error of its disk that its log names")
    return error_of(rc, what)


def error_of(rc: int, what: str) -> BrokerError:
    """Returns the error for a result code other than OK. `what`: the request, for the text."""
    if rc == NOT_ENOUGH_BOOKIES:
        return NotEnoughBookies(
            f"{what}: a bookie failed and no other can take its place; start more bookies"
        )
    return _ERRORS.get(rc, PersistenceError)(f"{what}: bookie answered {rc}")
