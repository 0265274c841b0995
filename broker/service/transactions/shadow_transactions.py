"""ShadowTransactions: which entries of its source the readers of a shadow topic see while transactions go on.

Transactions publish to the source, so it decides which entries are hidden. Acknowledgements of open transactions belong to
the shadow's own subscriptions. Of a source that another broker writes, `FollowedTransactions` reads each new entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.managed_ledger.ledger_context import Divided, ReadView
from broker.service.entry_facts import facts_of
from broker.service.transactions.log_reading import entries_after
from broker.service.transactions.topic_transactions import TopicTransactions, stored_buffer
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


class FollowedTransactions(TopicTransactions):
    """The view of a source that another broker writes: nobody reads past the entries that it has looked at."""

    __slots__ = ("_seen",)

    async def restore(self, texts: Mapping[str, str], through: Position) -> None:
        """Restores the state from the texts of the source's cursor, and the entries after it. Raises as `Ledgers.read`."""
        self.buffer, self._seen = stored_buffer(texts), through
        await self.look()
        self._ledger.context.view = self

    async def look(self) -> None:
        """Looks at the entries that have been confirmed since. Raises as `Ledgers.read`."""
        assert self.buffer is not None, "set by `restore`"
        async for entry in entries_after(self._ledger, self._seen):
            self.buffer.entry(entry.position, facts_of(entry))
            self._seen = entry.position
        self._find_readable()

    def last_readable(self, last_confirmed: Position) -> Position:
        """Returns the last position before the first open transaction, among the entries that were looked at."""
        return min(super().last_readable(last_confirmed), self._seen)
