"""ShadowTransactions: which entries of its source the readers of a shadow topic see while transactions go on.

Transactions publish to the source, so it decides which entries are hidden. Acknowledgements of open transactions belong to
the shadow's own subscriptions.
"""

from __future__ import annotations

from broker.managed_ledger.ledger_context import Divided, ReadView
from broker.service.transactions.topic_transactions import TopicTransactions
from foundation.model.entry import Entry
from foundation.model.position import Position


class ShadowTransactions(TopicTransactions):
    """The view of a shadow topic's cursors."""

    __slots__ = ()

    @property
    def _of_source(self) -> ReadView | None:
        assert self._ledger.source is not None
        return self._ledger.source.context.view

    def last_readable(self, last_confirmed: Position) -> Position:
        """Returns the source's last readable position."""
        view = self._of_source
        return last_confirmed if view is None else view.last_readable(last_confirmed)

    def divide(self, cursor_name: str, taken: list[Entry]) -> Divided:
        """Divides by the source's transactions, and by acknowledgements of the shadow's own subscription."""
        shown, left_out, dead = super().divide(cursor_name, taken) if self.pending else (taken, [], [])
        view = self._of_source
        if view is None:
            return Divided(shown, left_out, dead)
        # No cursor of the source: acknowledgements there hide nothing here.
        of_source = view.divide("", shown)
        return Divided(of_source.shown, left_out + of_source.left_out, of_source.dead)
