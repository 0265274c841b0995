"""ReplicationWorker: takes marked ledgers, copies what is missing, and removes the marks.

The laws:

1. A ledger is touched only under its lock. The garbage collection of bookies takes the same lock before it gives up
   entries that a ledger's metadata does not name, so it cannot remove a copy before the metadata names it.
2. The order is: copy, all adds answered; ask if the lock is still held; metadata by compare-and-set; look at every copy
   once more; ask for the lock again; remove the mark.
   After a crash in between the mark is still there, and the next worker begins anew with the metadata as it finds it.
3. A mark is removed only if the lock was held all the time and no copy is missing.
4. A ledger whose writer may be alive gets a grace period. Then it is fenced and closed, and copied like any other.

BookKeeper's name: ReplicationWorker.
"""

from __future__ import annotations

import enum
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

from bookkeeper.client.digest import Digest, digest_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.ensemble_writer import CallSoon, Spawn
from bookkeeper.ensembles.own_ledger import RecoveringLedger, read_metadata
from bookkeeper.ensembles.racks import Placement, affinity_of, read_racks
from bookkeeper.ensembles.recovery import recover
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.repair.copying import Copying, CopyRefused, copy_fragment
from bookkeeper.repair.fragments import Fragment, backoff_ns, fragments_of, replace_members
from bookkeeper.repair.marks import Lock, Locks, Marked, Marks
from bookkeeper.repair.replicas import missing_positions
from bookkeeper.repair.settings import RecoverySettings
from bookkeeper.repair.stats import WorkerStats
from foundation.model.errors import BadVersion, BrokerError, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, encode, ledger_key

log = logging.getLogger(__name__)

_TARGETS_MAX = 3
"""Bookies that are tried for one position in one attempt."""

Registered = Callable[[], Awaitable[frozenset[str]]]
"""Returns the ids of all bookies that serve now, read-only ones included."""


class RepairOutcome(enum.Enum):
    """The end of an attempt at a ledger."""

    FINISHED = enum.auto()
    """Every copy is there, and the mark is removed."""
    GONE = enum.auto()
    """The ledger or its mark is gone; no mark is left."""
    WAITS = enum.auto()
    """The ledger is open, and its writer has time to replace the bookie itself."""
    DEFERRED = enum.auto()
    """Copies are still missing."""
    TAKEN = enum.auto()
    """Another worker has the ledger."""


@dataclass(slots=True)
class _Attempts:
    """A marked ledger's past attempts."""

    failures: int = 0
    retry_ns: int = 0
    """No attempt before this time."""
    open_since_ns: int | None = None
    """When it was first found open with a lost bookie."""


class ReplicationWorker:
    """Works on one ledger at a time."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: Bookies,
        marks: Marks,
        locks: Locks,
        registered: Registered,
        settings: RecoverySettings,
        means: Copying,
        *,
        call_soon: CallSoon,
        spawn: Spawn,
        shuffle: Callable[[list[int]], None] = random.shuffle,
    ) -> None:
        """`call_soon` and `spawn` as the loop's; the recovery of open ledgers needs them.

        `shuffle` puts the marked ledgers into an order of chance.
        """
        self._store = store
        self._bookies = bookies
        self._marks = marks
        self._locks = locks
        self._registered = registered
        self._settings = settings
        self._means = means
        self._now_ns = means.now_ns
        self._stats: WorkerStats = means.stats
        self._call_soon = call_soon
        self._spawn = spawn
        self._shuffle = shuffle
        self._attempts: dict[int, _Attempts] = {}

    async def work(self) -> bool:
        """Tries every marked ledger once, in an order of chance; returns True when a mark was removed.

        An error of one ledger is logged, and the ledger waits for its next attempt. Raises MetadataError when the marks
        cannot be read.
        """
        if not await self._marks.enabled():
            return False
        marked = [ledger_id async for ledger_id in self._marks.ledgers()]
        self._attempts = {
            ledger_id: self._attempts[ledger_id] for ledger_id in marked if ledger_id in self._attempts
        }
        # Workers that all began with the same ledger would wait for each other's locks.
        self._shuffle(marked)
        removed = False
        for ledger_id in marked:
            attempts = self._attempts.setdefault(ledger_id, _Attempts())
            if self._now_ns() >= attempts.retry_ns:
                removed |= await self._attempt(ledger_id, attempts)
        return removed

    async def _attempt(self, ledger_id: int, attempts: _Attempts) -> bool:
        try:
            outcome = await self.replicate(ledger_id)
        except BrokerError as error:
            self._stats.failed += 1
            log.warning("ledger %d still lacks copies: %s", ledger_id, error)
            outcome = RepairOutcome.DEFERRED
        if outcome in (RepairOutcome.FINISHED, RepairOutcome.GONE):
            return True
        if outcome is RepairOutcome.DEFERRED:
            self._stats.deferred += 1
            attempts.failures += 1
            wait_ns = backoff_ns(attempts.failures, self._settings.backoff_ns, self._settings.backoff_ns_max)
            attempts.retry_ns = self._now_ns() + wait_ns
        return False

    async def replicate(self, ledger_id: int) -> RepairOutcome:
        """Copies what one marked ledger lacks. Raises BrokerError; the mark is still there then."""
        lock = await self._locks.take(ledger_id)
        if lock is None:
            return RepairOutcome.TAKEN
        try:
            # Under the lock: the mark's version must not be older than the metadata that is read next.
            marked = await self._marks.get(ledger_id)
            if marked is None:
                return RepairOutcome.GONE
            return await self._replicate(marked, lock)
        finally:
            await lock.release()

    async def _replicate(self, marked: Marked, lock: Lock) -> RepairOutcome:
        ledger_id = marked.ledger_id
        found = await read_metadata(self._store, ledger_id)
        if found is None:
            await self._marks.remove(marked)
            log.info("ledger %d is deleted and needs no copies", ledger_id)
            return RepairOutcome.GONE
        metadata, _ = found
        registered = await self._registered()
        waits = False
        if _open_lost(metadata, registered):
            closed = await self._close(ledger_id)
            waits = closed is None
            metadata = metadata if closed is None else closed
        digest = digest_of(metadata.digest_type, metadata.password)
        place = Placement(
            await read_racks(self._store), affinity_of(metadata.custom), (), metadata.write_quorum
        )
        copied = 0
        for fragment in fragments_of(metadata):
            if not fragment.is_open:
                copied += await self._mend(ledger_id, fragment, digest, place, registered, lock)
        self._stats.replicated += copied > 0
        return RepairOutcome.WAITS if waits else await self._finish(marked, lock, registered)

    async def _close(self, ledger_id: int) -> LedgerMetadata | None:
        """Returns the metadata of the fenced and closed ledger; None while its writer has time left."""
        attempts = self._attempts.setdefault(ledger_id, _Attempts())
        if attempts.open_since_ns is None:
            attempts.open_since_ns = self._now_ns()
        ends_ns = attempts.open_since_ns + self._settings.open_ledger_grace_ns
        if self._now_ns() < ends_ns:
            attempts.retry_ns = ends_ns
            return None
        taken = await RecoveringLedger.take_over(self._store, ledger_id)
        if isinstance(taken, RecoveringLedger):
            log.info(
                "ledger %d is fenced and closed, because a bookie of its last ensemble is lost", ledger_id
            )
            taken = await recover(taken, self._bookies, call_soon=self._call_soon, spawn=self._spawn)
            self._stats.recovered += 1
        return taken

    async def _mend(
        self,
        ledger_id: int,
        fragment: Fragment,
        digest: Digest,
        place: Placement,
        registered: Collection[str],
        lock: Lock,
    ) -> int:
        """Copies what a closed fragment lacks; returns the number of positions that have their entries again."""
        missing = await missing_positions(ledger_id, fragment, digest, self._bookies, registered)
        if not missing:
            return 0
        fresh: dict[int, str] = {}
        for position in missing:
            fresh[position] = await self._copy(
                ledger_id, fragment, digest, place, position, missing, fresh, registered
            )
        changed = {
            position: bookie
            for position, bookie in fresh.items()
            if bookie != fragment.segment.members[position]
        }
        if changed:
            await self._store_ensemble(ledger_id, fragment, changed, lock)
        return len(fresh)

    async def _copy(
        self,
        ledger_id: int,
        fragment: Fragment,
        digest: Digest,
        place: Placement,
        position: int,
        missing: Collection[int],
        fresh: dict[int, str],
        registered: Collection[str],
    ) -> str:
        """Gives the entries of a position to a bookie; returns the bookie.

        Raises NotEnoughBookies when none is left to try, and the errors of `copy_fragment`.
        """
        before = fragment.segment.members[position]
        avoid = {*fragment.segment.members, *fresh.values()}
        members = [fresh.get(number, name) for number, name in enumerate(fragment.segment.members)]
        place = place._replace(
            members=[None if number == position else name for number, name in enumerate(members)]
        )
        last: CopyRefused | None = None
        for attempt in range(_TARGETS_MAX):
            target = self._target(before, avoid, place, registered, first=attempt == 0)
            log.info(
                "ledger %d: entries %d to %s of %s are copied to %s",
                *(ledger_id, fragment.segment.first_entry_id, fragment.last_entry_id, before, target),
            )
            try:
                await copy_fragment(self._means, ledger_id, fragment, digest, position, target, missing)
            except CopyRefused as refused:
                log.warning("%s", refused)
                self._bookies.failed(target)
                avoid.add(target)
                last = refused
                continue
            return target
        assert last is not None
        raise last

    def _target(
        self,
        before: str,
        avoid: Collection[str],
        place: Placement,
        registered: Collection[str],
        *,
        first: bool,
    ) -> str:
        """Returns the bookie that gets a copy.

        A bookie that is registered and lost its entries gets them back: it is a member, and with as many bookies as
        members there is no other. A read-only or broken one refuses, and the next attempt takes another.
        """
        if first and before in registered and before in self._bookies.names:
            return before
        return self._bookies.choose(1, avoid=avoid, place=place)[0]

    async def _store_ensemble(
        self, ledger_id: int, fragment: Fragment, fresh: dict[int, str], lock: Lock
    ) -> None:
        """Puts the new bookies into the ledger's metadata, whatever else has changed in it meanwhile.

        Raises PersistenceError when the lock was lost.
        """
        while True:
            # A bookie may have given up the copies that it had when the lock was lost, and keep the later ones. The look
            # at first and last entries would not see that. Lost after this line, it gives up all or none, which shows.
            if not await lock.is_held():
                raise PersistenceError(f"the lock of ledger {ledger_id} was lost during the copy")
            found = await read_metadata(self._store, ledger_id)
            if found is None:
                return  # Deleted. The garbage collection of the bookies removes the copies.
            metadata, version = found
            changed = replace_members(metadata, fragment.segment, fresh)
            if changed is None:
                # Another process moved this segment. The check after it tells what is missing now.
                log.warning("ledger %d: its ensemble was changed by another process", ledger_id)
                return
            try:
                await self._store.put(ledger_key(ledger_id), encode(changed), version)
            except BadVersion:
                continue
            return

    async def _finish(self, marked: Marked, lock: Lock, registered: Collection[str]) -> RepairOutcome:
        """Looks at all copies once more, and removes the mark if none is missing."""
        ledger_id = marked.ledger_id
        found = await read_metadata(self._store, ledger_id)
        if found is not None:
            metadata, _ = found
            digest = digest_of(metadata.digest_type, metadata.password)
            look = partial(
                missing_positions, ledger_id, digest=digest, bookies=self._bookies, registered=registered
            )
            if _open_lost(metadata, registered):
                return RepairOutcome.DEFERRED
            for fragment in fragments_of(metadata):
                if not fragment.is_open and await look(fragment=fragment):
                    return RepairOutcome.DEFERRED
        # Without the lock a bookie may have given up what was copied to it (law 1), and the check came too early.
        if not await lock.is_held() or not await self._marks.remove(marked):
            return RepairOutcome.DEFERRED
        self._stats.finished += 1
        log.info("ledger %d has all its copies", ledger_id)
        return RepairOutcome.FINISHED


def _open_lost(metadata: LedgerMetadata, registered: Collection[str]) -> bool:
    """Returns True when the last ensemble of a ledger that is not closed has a lost bookie."""
    last = fragments_of(metadata)[-1]
    return last.is_open and any(member not in registered for member in last.segment.members)
