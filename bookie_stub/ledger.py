"""A ledger as the bookie knows it while it runs: its key, whether it is fenced, its highest entry."""

from __future__ import annotations

from itertools import count

from bookie_stub.ledger_index import LedgerData
from bookie_stub.record import UNSET_KEY

_serials = count(1)


class Ledger:
    __slots__ = (
        "explicit_lac",
        "fence_durable",
        "fenced",
        "key_journaled",
        "key_open",
        "last",
        "last_known",
        "ledger_id",
        "limbo",
        "master_key",
        "serial",
        "writable_key",
    )

    def __init__(self, ledger_id: int, data: LedgerData, *, stored: bool) -> None:
        """`stored`: known from index or journal, so that the location index may have entries of it."""
        self.serial = next(_serials)
        """In this process no other ledger has it, not even one of the same id after this one is deleted."""
        self.ledger_id = ledger_id
        self.master_key = data.master_key
        self.key_open = stored and data.master_key in (b"", UNSET_KEY)
        """The key is not known yet: the first one presented becomes it."""
        self.fenced = data.fenced
        self.fence_durable = data.fenced and stored
        self.explicit_lac = data.explicit_lac
        self.limbo = data.limbo
        """Its negatives are not to be believed (BP-46): "no entry" is answered as I/O error."""
        self.key_journaled = False
        """The master key record was written by this process, and its write did not fail."""
        self.writable_key: bytes | None = None
        """The key that a plain add may present without any further check; None sends it the long way."""
        self.last = -1
        """The highest entry id added or loaded since the start, or of all when `last_known`."""
        self.last_known = not stored

    def data(self) -> LedgerData:
        return LedgerData(self.master_key, self.fenced, self.explicit_lac, self.limbo)
