"""TransactionBuffer: the open and the aborted transactions of one topic, learnt from the entries of its log.

An entry of a transaction stands in the log like any other. A later marker says how the transaction ended. Feeding
the entries in their order, live or after a restart, leads to the same state. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from foundation.model.position import Position
from foundation.model.txn_id import TxnId
from protocol.message_metadata import TXN_ABORT, TXN_COMMIT, MessageFacts


class TransactionBuffer:
    """Decides from which entry on readers must wait, and which entries they never get."""

    __slots__ = ("aborted", "aborts", "commits", "open")

    def __init__(self) -> None:
        self.open: dict[TxnId, Position] = {}
        """First entry of each transaction without a marker, in the order of the log."""
        self.aborted: dict[TxnId, Position] = {}
        """Position at or after the last entry of each aborted transaction."""
        self.commits = 0
        """Transactions committed since the topic was opened."""
        self.aborts = 0
        """Transactions aborted since the topic was opened."""

    @property
    def first_open(self) -> Position | None:
        """The first entry of the oldest open transaction; None without one."""
        return next(iter(self.open.values()), None)

    def entry(self, position: Position, facts: MessageFacts | None) -> None:
        """Takes note of the next entry of the log; None stands for unreadable bytes."""
        if facts is None or facts.txn is None:
            return
        txn = TxnId(*facts.txn)
        if facts.marker == TXN_COMMIT:
            self.end(txn, position, commit=True)
        elif facts.marker == TXN_ABORT:
            self.end(txn, position, commit=False)
        elif txn not in self.aborted:
            self.open.setdefault(txn, position)

    def end(self, txn: TxnId, position: Position, *, commit: bool) -> None:
        """Ends a transaction; `position` is at or after its last entry. Ignored unless it is open here."""
        if self.open.pop(txn, None) is None:
            return
        if commit:
            self.commits += 1
        else:
            self.aborts += 1
            self.aborted[txn] = position

    def hides(self, facts: MessageFacts | None) -> bool:
        """Returns True for markers and for entries of aborted transactions."""
        if facts is None or facts.txn is None:
            return False
        return facts.marker != 0 or TxnId(*facts.txn) in self.aborted

    def forget_before(self, ledger_id: int) -> None:
        """Drops aborted transactions whose entries are all in ledgers below this one, which are trimmed."""
        gone = [txn for txn, position in self.aborted.items() if position.ledger_id < ledger_id]
        for txn in gone:
            del self.aborted[txn]

    def abort_unknown(self, undecided: Collection[TxnId], position: Position) -> list[TxnId]:
        """Aborts the open transactions that are not among these; `position` is the end of the log.

        Their coordinator does not know them, so no marker will ever come.
        """
        unknown = [txn for txn in self.open if txn not in undecided]
        for txn in unknown:
            self.end(txn, position, commit=False)
        return unknown

    def to_text(self) -> str:
        """Returns the state as JSON: lists of [most bits, least bits, ledger, entry]."""
        return json.dumps(
            {"open": _rows(self.open.items()), "aborted": _rows(self.aborted.items())}, separators=(",", ":")
        )

    @classmethod
    def of_text(cls, text: str) -> TransactionBuffer:
        """Restores the state from `to_text`; "" is the empty one."""
        buffer = cls()
        if text:
            stored = json.loads(text)
            buffer.open = _positions(stored["open"])
            buffer.aborted = _positions(stored["aborted"])
        return buffer


def _rows(items: Iterable[tuple[TxnId, Position]]) -> list[list[int]]:
    return [[*txn, *position] for txn, position in items]


def _positions(rows: list[list[int]]) -> dict[TxnId, Position]:
    return {TxnId(most, least): Position(ledger, entry) for most, least, ledger, entry in rows}
