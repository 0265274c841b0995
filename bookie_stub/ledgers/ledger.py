"""A ledger as the bookie knows it while it runs: its key, whether it is fenced, its highest entry, its LAC."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from bookie_stub.base.record import UNSET_KEY, explicit_lac_of
from bookie_stub.disk.ledger_index import LedgerData

NOT_COUNTED = -2

_serials = count(1)


class Ledger:
    __slots__ = (
        "_gave_up",
        "explicit_lac",
        "fence_durable",
        "fenced",
        "key_journaled",
        "key_open",
        "lac",
        "lac_entry",
        "last",
        "last_known",
        "ledger_id",
        "limbo",
        "master_key",
        "serial",
        "watchers",
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
        """The body of the highest WRITE_LAC, as its writer made it."""
        self.limbo = data.limbo
        """Entries of it may be lost (BP-46): what is there is served, whatever is not there is unknown."""
        self.key_journaled = False
        """The master key record was written by this process, and its write did not fail."""
        self.writable_key: bytes | None = None
        """The key that a plain add may present without any further check; None sends it the long way."""
        self.last = -1
        """The highest entry id added or loaded since the start, or of all when `last_known`."""
        self.last_known = not stored
        self.lac = -1 if data.explicit_lac is None else explicit_lac_of(data.explicit_lac)
        """The highest last add confirmed that was seen, of the entries as far as `lac_entry` says."""
        self.lac_entry = NOT_COUNTED
        """The last entry when `lac` was taken from it; another one since makes `lac` a lower bound."""
        self._gave_up = False
        """Emptied by this process; what is added from then on is behind `last`."""
        self.watchers: dict[Callable[[], None], int] = {}
        """To be called once, when the LAC passes the number or the ledger is fenced or deleted."""

    def data(self) -> LedgerData:
        return LedgerData(self.master_key, self.fenced, self.explicit_lac, self.limbo)

    def emptied(self) -> Ledger:
        """The same ledger without its entries, also those in caches."""
        ledger = Ledger(self.ledger_id, self.data(), stored=False)
        ledger.key_open, ledger.fence_durable = self.key_open, self.fence_durable
        ledger._gave_up = True
        return ledger

    @property
    def needs_logs(self) -> bool:
        """Whether an entry log may have something of it that is to be kept. Not what the index says: a damaged one may
        have forgotten entries that can be found again."""
        return not self._gave_up or self.last >= 0

    def lac_moved(self, lac: int) -> None:
        """To `lac`, which is higher than what was known."""
        self.lac = lac
        self._wake([watcher for watcher, beyond in self.watchers.items() if beyond < lac])

    def ended(self) -> None:
        """Fenced or deleted: nobody is to wait for more."""
        self._wake(list(self.watchers))

    def _wake(self, watchers: list[Callable[[], None]]) -> None:
        for watcher in watchers:
            del self.watchers[watcher]
            watcher()
