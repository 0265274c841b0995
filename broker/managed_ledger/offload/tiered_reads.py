"""Reads of ledgers that may be in the bookies, in other storage, or in both.

With a copy in both, one is read first by `managedLedgerDataReadPriority`, and the other when that read fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.offload.tier import CopyRead, RunRead
from foundation.model.entry import Entry
from foundation.model.errors import LOST_ENTRY, BrokerError

log = logging.getLogger("magnetar")
_Read = Callable[[RunRead], None]


def read_copied(context: LedgerContext, info: LedgerInfo, first: int, last: int, done: RunRead) -> None:
    """Reads some entries from `first` on, none after `last`; `done` is called in a later loop turn."""
    ledger_id, offload, bytes_max = info.ledger_id, info.offload, context.settings.read_bytes_max
    assert offload is not None
    copy = partial(_read_copy, context, CopyRead(context.name, ledger_id, offload, first, last, bytes_max))
    if offload.bookkeeper_deleted:
        copy(done)
        return

    def bookies(then: RunRead) -> None:
        context.environment.ledgers.read(ledger_id, first, last, bytes_max, then)

    if context.settings.offload.bookkeeper_first:
        bookies(partial(_or_else, copy, done))
    else:
        copy(partial(_or_else, bookies, done))


def _read_copy(context: LedgerContext, asked: CopyRead, done: RunRead) -> None:
    try:
        tier = context.environment.open_tier()
    except BrokerError as error:
        failed = error
        context.at_end_of_turn(lambda: done([], failed))
        return
    tier.read(asked, done)


def _or_else(other: _Read, done: RunRead, entries: list[Entry], error: BrokerError | None) -> None:
    if error is None:
        done(entries, None)
        return
    log.warning("%s; the other copy of the ledger is read", error)
    first = error

    def ended(entries: list[Entry], error: BrokerError | None) -> None:
        # Lost is what neither copy has: a copy that cannot be read now may be read later.
        is_lost = isinstance(error, LOST_ENTRY) and isinstance(first, LOST_ENTRY)
        done(entries, error if is_lost or not isinstance(error, LOST_ENTRY) else first)

    other(ended)
