"""Rules of the ledger client and of bookies, each broken on purpose: the simulation has to notice every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

from bookie_stub.ledgers.registry import LedgerRegistry
from bookie_stub.ledgers.replay import JournalReplay
from bookkeeper.client.result_codes import UNREACHABLE
from bookkeeper.ensembles import recovery
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.ensemble_writer import EnsembleWriter, _Member
from bookkeeper.ensembles.own_ledger import OwnLedger, RecoveringLedger
from bookkeeper.repair.copying import _Copy
from protocol.bookie_frame import RC_NO_ENTRY, RC_NO_LEDGER
from protocol.ledger_metadata import LedgerMetadata
from tests.sim.autorecovery import LocksOf, SimLock
from tests.sim.bookie import SimBookie, SimJournal
from tests.sim.network import SimConnection

Patch = Callable[[], object]


def _one_ack_less() -> object:
    plain = EnsembleWriter.__init__

    def init(self: EnsembleWriter, *values: object, **named: object) -> None:
        plain(self, *values, **named)  # type: ignore[arg-type]
        self._quorum = max(1, self._quorum - 1)

    return mock.patch.object(EnsembleWriter, "__init__", init)


def _old_answers_count() -> object:
    """Acknowledgements of a bookie that was replaced stay valid for its position."""

    class Sticky(set[int]):
        def discard(self, position: object) -> None:
            """Forgets nothing."""

    plain = EnsembleWriter.add

    def add(
        self: EnsembleWriter, ledger_id: int, entry_ids: Sequence[int], *values: object, **named: object
    ) -> None:
        plain(self, ledger_id, entry_ids, *values, **named)  # type: ignore[arg-type]
        for entry_id in entry_ids:
            if entry_id in self._pending:
                self._pending[entry_id].acks = Sticky(self._pending[entry_id].acks)

    return mock.patch.object(EnsembleWriter, "add", add)


def _replaced_bookies_count() -> object:
    """Answers of a replaced bookie count for the one that has its position."""
    plain = EnsembleWriter.answered

    def answered(self: EnsembleWriter, member: _Member, rc: int, entry_id: int) -> None:
        plain(self, self._members[member.position], rc, entry_id)

    return mock.patch.object(EnsembleWriter, "answered", answered)


def _damage_is_believed() -> object:
    """A recovery takes what it finds without looking at the digest."""
    return mock.patch.object(recovery._Recovery, "_damage", return_value=None)


def _segment_not_stored() -> object:
    """The new ensemble is used although the metadata store does not have it."""

    async def change(self: OwnLedger, first_entry_id: int, members: tuple[str, ...]) -> None:
        self.metadata = self.metadata.with_ensemble(first_entry_id, members)

    return mock.patch.object(OwnLedger, "change_ensemble", change)


def _confirmed_while_changing() -> object:
    """Entries are confirmed before the segment that they belong to is stored."""
    plain = EnsembleWriter.answered

    def answered(self: EnsembleWriter, *values: object) -> None:
        plain(self, *values)  # type: ignore[arg-type]
        self._confirm()

    return mock.patch.object(EnsembleWriter, "answered", answered)


def _reads_do_not_fence() -> object:
    """BookKeeper's issue 2614: only the question for the last entry fences."""
    plain = SimConnection.fence

    def fence(self: SimConnection, ledger_id: int, key: bytes, done: object, entry_id: int = -1) -> None:
        if entry_id < 0:
            plain(self, ledger_id, key, done, entry_id)  # type: ignore[arg-type]
        else:
            self.read(ledger_id, entry_id, done)  # type: ignore[arg-type]

    return mock.patch.object(SimConnection, "fence", fence)


def _no_fence_at_all() -> object:
    def fence(self: SimConnection, ledger_id: int, key: bytes, done: object, entry_id: int = -1) -> None:
        self.read(ledger_id, entry_id, done)  # type: ignore[arg-type]

    return mock.patch.object(SimConnection, "fence", fence)


def _one_no_is_enough() -> object:
    return mock.patch.object(recovery, "proves_absence", return_value=True)


def _an_error_is_a_no() -> object:
    return mock.patch.object(recovery, "NEGATIVE", (RC_NO_LEDGER, RC_NO_ENTRY, UNREACHABLE))


def _nothing_is_written_back() -> object:
    async def close_only(self: recovery._Recovery, confirmed: int, writer: EnsembleWriter) -> tuple[int, int]:
        return confirmed, 0

    return mock.patch.object(recovery._Recovery, "write_back", close_only)


def _any_recovery_closes() -> object:
    """A recovery closes the ledger without looking whether another one did."""
    plain = RecoveringLedger.close

    async def close(self: RecoveringLedger, last_entry_id: int, length: int) -> LedgerMetadata:
        with mock.patch.object(self, "_version", None):
            return await plain(self, last_entry_id, length)

    return mock.patch.object(RecoveringLedger, "close", close)


def _ensemble_with_a_bookie_twice() -> object:
    plain = EnsembleWriter._replace

    async def careless(self: EnsembleWriter, positions: list[int]) -> None:
        class Careless:
            def __getattr__(self, name: str) -> object:
                return getattr(bookies, name)

            def choose(self, count: int, *, avoid: object, place: object) -> tuple[str, ...]:
                return bookies.choose(count)

        bookies: Bookies = self._bookies
        self._bookies = Careless()  # type: ignore[assignment]
        try:
            await plain(self, positions)
        finally:
            self._bookies = bookies

    return mock.patch.object(EnsembleWriter, "_replace", careless)


def _recovers_in_front() -> object:
    """BookKeeper's issue 2615: a recovery begins where the last entries say, though that is an earlier segment."""
    plain = recovery._Recovery.find_confirmed

    async def find(self: recovery._Recovery) -> int:
        metadata = self._metadata
        last = metadata.segments[-1]._replace(first_entry_id=0)
        self._metadata = replace(metadata, segments=(*metadata.segments[:-1], last))
        try:
            return await plain(self)
        finally:
            self._metadata = metadata

    return mock.patch.object(recovery._Recovery, "find_confirmed", find)


def _fence_lost_in_a_crash() -> object:
    return mock.patch.object(JournalReplay, "_fence", return_value=None)


def _answered_before_the_sync() -> object:
    plain = SimJournal.append

    def append(self: SimJournal, record: bytes, done: Callable[[int, int], None], value: int) -> None:
        done(0, value)
        plain(self, record, lambda rc, number: None, value)

    return mock.patch.object(SimJournal, "append", append)


def _a_lost_disk_says_no() -> object:
    """BP-46: a bookie that lost its disk says that it does not have what it had."""
    plain = SimBookie.start_after_a_loss
    return mock.patch.object(SimBookie, "start_after_a_loss", lambda self, ledgers: plain(self, ()))


def _a_forgotten_ledger_is_new() -> object:
    """After a loss only what the bookie still knows is in limbo."""
    return mock.patch("tests.sim.bookie.add_lost_ledgers", return_value=0)


def _a_deleted_ledger_is_new() -> object:
    """A deleted ledger is taken for a new one, without its fence."""
    return mock.patch.object(LedgerRegistry, "has_deleted", return_value=False)


def _copies_not_awaited() -> object:
    """The metadata names a bookie before it has answered the adds of the copies."""
    plain = _Copy._write

    def write(self: _Copy, *values: object) -> asyncio.Future[None]:
        plain(self, *values).add_done_callback(lambda batch: batch.exception())  # type: ignore[arg-type]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    return mock.patch.object(_Copy, "_write", write)


def _no_lock() -> object:
    """Workers copy although a bookie is giving the same ledger's entries up."""

    async def take(self: object, ledger_id: int) -> SimLock:
        return SimLock(self.locks, self.client, ledger_id)  # type: ignore[attr-defined]

    async def is_held(self: SimLock) -> bool:
        return True

    return _both(mock.patch.object(LocksOf, "take", take), mock.patch.object(SimLock, "is_held", is_held))


@contextmanager
def _both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


BREAKAGES: dict[str, Patch] = {
    "copies-not-awaited": _copies_not_awaited,
    "no-replication-lock": _no_lock,
    "one-ack-less": _one_ack_less,
    "old-answers-count": _old_answers_count,
    "replaced-bookies-count": _replaced_bookies_count,
    "damage-is-believed": _damage_is_believed,
    "segment-not-stored": _segment_not_stored,
    "confirmed-while-changing": _confirmed_while_changing,
    "reads-do-not-fence": _reads_do_not_fence,
    "no-fence-at-all": _no_fence_at_all,
    "one-no-is-enough": _one_no_is_enough,
    "an-error-is-a-no": _an_error_is_a_no,
    "nothing-is-written-back": _nothing_is_written_back,
    "any-recovery-closes": _any_recovery_closes,
    "a-bookie-twice": _ensemble_with_a_bookie_twice,
    "recovers-in-front": _recovers_in_front,
    "fence-lost-in-a-crash": _fence_lost_in_a_crash,
    "answered-before-the-sync": _answered_before_the_sync,
    "a-lost-disk-says-no": _a_lost_disk_says_no,
    "a-forgotten-ledger-is-new": _a_forgotten_ledger_is_new,
    "a-deleted-ledger-is-new": _a_deleted_ledger_is_new,
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    with BREAKAGES[name]():  # type: ignore[attr-defined]
        yield
