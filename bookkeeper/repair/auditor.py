"""Auditor: finds lost bookies and ledgers that lack copies, and marks them.

One process of the cluster is the auditor at a time (`Election`). Two at once, for the moment in which one has not noticed
that its session has ended, do no harm: marks are merged.

The laws:

1. A bookie is lost when ledgers need it and it is not registered. After `lostBookieRecoveryDelay` its ledgers are
   marked; when several are lost, at once.
2. A cluster in which no bookie is registered is a cluster that is down, or a metadata store that was mended: nothing is
   marked then.
3. A write of the delay's node asks for an audit at once, as BookKeeper's shell does with `triggeraudit`.

BookKeeper's name: Auditor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from bookkeeper.client.digest import digest_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.own_ledger import read_metadata
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.repair.fragments import due_bookies, follow_lost, fragments_of, lost_of
from bookkeeper.repair.marks import BadMark, Marks
from bookkeeper.repair.replicas import missing_positions
from bookkeeper.repair.settings import RecoverySettings
from bookkeeper.repair.stats import AuditorStats
from bookkeeper.repair.worker import Registered
from foundation.model.errors import MetadataError
from foundation.units import NS_PER_SECOND
from protocol.ledger_metadata import LedgerMetadata

log = logging.getLogger(__name__)

_TOGETHER = 200
"""Ledgers whose metadata is read at a time."""
_LEVEL_LENGTHS = (2, 3, 4)
"""Lengths of the names of folders between the root and a ledger."""
_LEDGER_LENGTH = 5


class Auditor:
    """The auditor of a cluster, while its process is elected."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: Bookies,
        marks: Marks,
        registered: Registered,
        settings: RecoverySettings,
        stats: AuditorStats,
        *,
        now_ns: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`now_ns` is a monotonic clock, `wall_ms` milliseconds since the epoch."""
        self._store = store
        self._bookies = bookies
        self._marks = marks
        self._registered = registered
        self._settings = settings
        self._stats = stats
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._known: frozenset[str] = frozenset()
        """Bookies that were registered at the last check."""
        self._lost_since_ns: dict[str, int] = {}
        self._marked_for: frozenset[str] = frozenset()
        """Lost bookies whose ledgers are marked."""
        self._searched_ns: int | None = None
        """When all ledgers were searched for lost bookies last; None makes the next check search."""
        self._delay_version: int | None = None

    def forget(self) -> None:
        """Begins anew: this process is not the auditor any more, and may become it again."""
        self._known, self._lost_since_ns, self._marked_for = frozenset(), {}, frozenset()
        self._searched_ns = self._delay_version = None

    async def look(self) -> None:
        """Looks once at bookies, delay and times, and marks what is due. Raises MetadataError."""
        if not await self._marks.enabled():
            return
        registered = await self._registered()
        if not registered:
            return
        version = await self._marks.delay_version()
        asked = self._delay_version not in (None, version)
        await self._audit(registered, at_once=asked)
        # After the audit: one that failed is still asked for.
        self._delay_version = version
        await self._check_if_due(registered)

    # Lost bookies

    async def _audit(self, registered: frozenset[str], *, at_once: bool) -> None:
        now_ns = self._now_ns()
        known = self._known
        if at_once or self._is_search_due(now_ns):
            known |= await self._bookies_in_use()
            self._searched_ns = now_ns
        before = self._lost_since_ns
        self._lost_since_ns = lost = follow_lost(before, known, registered, now_ns)
        self._known = registered
        self._stats.cancelled += len(before.keys() - lost.keys() - self._marked_for)
        self._marked_for &= lost.keys()
        waiting = {bookie: since for bookie, since in lost.items() if bookie not in self._marked_for}
        if not waiting:
            return
        delay_s = await self._marks.delay_s(self._settings.lost_bookie_delay_s)
        due, next_ns = due_bookies(waiting, delay_s * NS_PER_SECOND, now_ns)
        if at_once:
            due, next_ns = frozenset(waiting), None
        if next_ns is not None and lost.keys() != before.keys():
            self._stats.delayed += 1
            log.info("bookie %s is lost; its ledgers are marked in %d s", ", ".join(sorted(waiting)), delay_s)
        if due:
            await self._mark(due, registered)
            self._marked_for |= due

    def _is_search_due(self, now_ns: int) -> bool:
        if self._searched_ns is None:
            return True
        interval_ns = self._settings.bookie_check_interval_s * NS_PER_SECOND
        return interval_ns > 0 and now_ns - self._searched_ns >= interval_ns

    async def _bookies_in_use(self) -> frozenset[str]:
        found: set[str] = set()
        async for _, metadata in self.ledgers():
            found.update(member for segment in metadata.segments for member in segment.members)
        return frozenset(found)

    async def _mark(self, lost: Collection[str], registered: frozenset[str]) -> None:
        """Marks every ledger that needs one of the lost bookies."""
        self._stats.audits += 1
        count = 0
        async for ledger_id, metadata in self.ledgers():
            missing = [bookie for bookie in lost_of(metadata, registered) if bookie in lost]
            if missing:
                count += await self._add(ledger_id, missing)
        self._stats.marked += count
        self._stats.marked_at_audits += count
        log.info("bookie %s is lost: %d ledgers are marked", ", ".join(sorted(lost)), count)

    async def _add(self, ledger_id: int, missing: Sequence[str]) -> bool:
        """Marks a ledger; returns False if it was marked for these bookies before. Raises MetadataError."""
        try:
            return await self._marks.add(ledger_id, missing, self._wall_ms())
        except BadMark as error:
            # Raised, it would end the search at this ledger, and those after it would never be marked.
            log.warning("a mark stays as it is: %s", error)
            return False

    # The check of all ledgers

    async def _check_if_due(self, registered: frozenset[str]) -> None:
        if self._settings.check_interval_s <= 0:
            return
        last_ms = await self._marks.checked_ms()
        now_ms = self._wall_ms()
        # A time in the future was written by a clock that ran ahead. Waiting for it might last for ever.
        if last_ms is not None and 0 <= now_ms - last_ms < self._settings.check_interval_s * 1000:
            return
        if last_ms is None:
            # A new cluster: its first check is due an interval from now, as every later one.
            await self._marks.note_checked(now_ms)
            return
        count = await self.check_all(registered)
        await self._marks.note_checked(self._wall_ms())
        log.info("all ledgers are checked: %d are marked", count)

    async def check_all(self, registered: frozenset[str]) -> int:
        """Asks for the copies of every ledger and marks those that lack some; returns their number."""
        count = 0
        async for ledger_id, metadata in self.ledgers():
            self._stats.checked += 1
            missing = set(lost_of(metadata, registered))
            digest = digest_of(metadata.digest_type, metadata.password)
            for fragment in fragments_of(metadata):
                if not fragment.is_open:
                    positions = await missing_positions(
                        ledger_id, fragment, digest, self._bookies, registered
                    )
                    missing.update(fragment.segment.members[position] for position in positions)
            if missing:
                count += await self._add(ledger_id, sorted(missing))
        self._stats.marked += count
        return count

    # Ledgers

    async def ledgers(self) -> AsyncIterator[tuple[int, LedgerMetadata]]:
        """Yields every ledger of the cluster. One whose metadata cannot be read is logged and left out."""
        async for some in _in_batches(all_ledgers(self._store)):
            for ledger_id, found in zip(some, await asyncio.gather(*map(self._read, some)), strict=True):
                if found is not None:
                    yield ledger_id, found

    async def _read(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            found = await read_metadata(self._store, ledger_id)
        except MetadataError as error:
            log.warning("the copies of a ledger cannot be judged: %s", error)
            return None
        return None if found is None else found[0]


async def all_ledgers(store: MetadataStore, key: str = "/ledgers", digits: str = "") -> AsyncIterator[int]:
    """Yields the ids of all ledgers in a metadata store. Raises MetadataError.

    Their folders have names of 2 to 4 digits; every other name in the folder belongs to something else.
    """
    for name in await store.children(key):
        if len(name) == _LEDGER_LENGTH and name[0] == "L" and name[1:].isdecimal():
            yield int(digits + name[1:])
        elif len(name) in _LEVEL_LENGTHS and name.isdecimal():
            async for ledger_id in all_ledgers(store, f"{key}/{name}", digits + name):
                yield ledger_id


async def _in_batches(ledger_ids: AsyncIterator[int]) -> AsyncIterator[list[int]]:
    some: list[int] = []
    async for ledger_id in ledger_ids:
        some.append(ledger_id)
        if len(some) == _TOGETHER:
            yield some
            some = []
    if some:
        yield some
