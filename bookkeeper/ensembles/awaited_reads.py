"""Reads of ledgers for work that may wait: opening a managed ledger, and topic compaction. The cache is not involved."""

from __future__ import annotations

import asyncio

from bookkeeper.ensembles.ledgers import Ledgers
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError


async def read_entries(
    ledgers: Ledgers, ledger_id: int, first: int, last: int, bytes_max: int
) -> list[Entry]:
    """Returns some entries from `first` on, at least one, none after `last`.

    They have about `bytes_max` bytes. Raises as `Ledgers.read`: NoSuchLedger, NoSuchEntry, PersistenceError.
    """
    answer: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

    def done(entries: list[Entry], error: BrokerError | None) -> None:
        if answer.done():  # The caller was cancelled.
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(entries)

    ledgers.read(ledger_id, first, last, bytes_max, done)
    try:
        return await answer
    except BrokerError:
        # The error's traceback has this frame, and the answer has the error: only the collector would free them.
        del answer
        raise
