"""The state of one ledger: key, fence, highest entry, LAC.

Only the loop's thread changes a `Ledger`; the garbage collector's thread reads `needs_logs`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from bookie_stub.base.record import UNSET_KEY, explicit_lac_of
from bookie_stub.disk.ledger_index import LedgerData

NOT_COUNTED = -2
"""Value of `Ledger.lac_entry` until someone asks for the LAC.

-1 already means "no entry"."""

_serials = count(1)


class Ledger:
    """One ledger of a running bookie. Its row in the ledger index is `data()`."""

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
        """`stored` says that the start found the ledger in index or journal.

        The location index may have entries of it then."""
        self.serial = next(_serials)
        """Identifies this object in the read cache; unique in the process.

        A ledger that is deleted and added again has another serial, so it never finds the entries of the old one."""
        self.ledger_id = ledger_id
        """The id that clients use; at least 0."""
        self.master_key = data.master_key
        """The key (20 bytes) that every add and fence must present."""
        self.key_open = stored and data.master_key in (b"", UNSET_KEY)
        """True while the key is unknown: the first one presented becomes it."""
        self.fenced = data.fenced
        """True once a fence was requested; then only adds of a recovery are accepted."""
        self.fence_durable = data.fenced and stored
        """True once the fence is on disk, so that it may be answered."""
        self.explicit_lac = data.explicit_lac
        """Body of the highest WRITE_LAC as its writer made it, or None."""
        self.limbo = data.limbo
        """True when entries may be lost (BP-46). A missing entry is then unknown, never absent."""
        self.key_journaled = False
        """True once this process has queued the master key record. A failed journal write sets it back."""
        self.writable_key: bytes | None = None
        """The key that lets a plain add skip all checks; None: all are checked.

        Set by the first add that passed the checks; cleared by a fence, a watcher and a journal failure."""
        self.last = -1
        """The highest entry id seen since the start. It is the ledger's highest one when `last_known`."""
        self.last_known = not stored
        """True when no entry in the location index is higher than `last`."""
        self.lac = -1 if data.explicit_lac is None else explicit_lac_of(data.explicit_lac)
        """The highest LAC seen, taken from entries as far as `lac_entry` says."""
        self.lac_entry = NOT_COUNTED
        """The entry whose LAC `lac` includes. While it differs from `last`, `lac` is a lower bound."""
        self._gave_up = False
        """Emptied by this process. Entries that are added from then on raise `last` above -1."""
        self.watchers: dict[Callable[[], None], int] = {}
        """Long polls and the LACs that they wait to be passed; called once."""

    def data(self) -> LedgerData:
        """Returns the row for the ledger index."""
        return LedgerData(self.master_key, self.fenced, self.explicit_lac, self.limbo)

    def emptied(self) -> Ledger:
        """Returns the same ledger without entries, with a new serial.

        The new serial also hides the entries that the read cache still has."""
        ledger = Ledger(self.ledger_id, self.data(), stored=False)
        ledger.key_open, ledger.fence_durable = self.key_open, self.fence_durable
        ledger._gave_up = True
        return ledger

    @property
    def needs_logs(self) -> bool:
        """True while an entry log may hold a needed entry of this ledger.

        The index is no proof of the contrary: a damaged index may have lost rows that a rebuild finds again."""
        return not self._gave_up or self.last >= 0

    def raise_lac(self, lac: int) -> None:
        """Sets a higher LAC and wakes the watchers that it passes."""
        self.lac = lac
        self._wake([watcher for watcher, beyond in self.watchers.items() if beyond < lac])

    def wake_watchers(self) -> None:
        """Wakes every watcher. The ledger was fenced or deleted, so its LAC may never rise again."""
        self._wake(list(self.watchers))

    def _wake(self, watchers: list[Callable[[], None]]) -> None:
        for watcher in watchers:
            # Removed first: a watcher that runs may ask to be removed itself.
            del self.watchers[watcher]
            watcher()
