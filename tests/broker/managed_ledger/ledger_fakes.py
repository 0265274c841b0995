"""A ledger client in memory whose answers a test can hold back or refuse, and a managed ledger's environment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, EntryParts, LedgerClient, ReadDone
from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Lease, MetadataStore, Write
from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.removal.deletion import decide_deletion, delete_managed_ledger
from broker.managed_ledger.settings import ManagedLedgerSettings
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, MetadataError
from foundation.model.position import EARLIEST, Position
from protocol.broker_entry_metadata import EntryStamp, decode
from tests.fakes.ledgers import on_one_bookie
from tests.fakes.whole_cache import WholeCache

PLENTY = 1 << 30
EVERY_CHANGE = 0.0
"""As `mark_delete_rate`: no throttle."""

A_CACHE = EntryCacheSettings(64 << 20, policy="pip430")

NAME = "t/n/persistent/x"
OK, NO_LEDGER, NO_ENTRY, WRITE_FAILED, FENCED = 0, 1, 2, 101, 104


class FakeLedgers:
    """Answers one `call_soon` later, unless `held`; then `release()` answers, in order or as told."""

    def __init__(self) -> None:
        self.stored: dict[int, dict[int, bytes]] = {}
        self.fenced: set[int] = set()
        self.deleted: list[int] = []
        self.recovery_adds: list[tuple[int, int]] = []
        self.batch_reads: list[tuple[int, int, int]] = []
        self.held: deque[Callable[[], None]] | None = None
        self.refuse: Callable[[int, int], int] = lambda ledger_id, entry_id: OK
        self.refuse_reads = OK

    def hold(self) -> None:
        self.held = deque()

    def release(self, count: int | None = None) -> None:
        assert self.held is not None
        for _ in range(len(self.held) if count is None else count):
            self.held.popleft()()

    def answer_at_once_again(self) -> None:
        held, self.held = self.held or deque(), None
        for answer in held:
            answer()

    def _later(self, answer: Callable[[], None]) -> None:
        if self.held is None:
            asyncio.get_running_loop().call_soon(answer)
        else:
            self.held.append(answer)

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        worst = OK
        for entry_id, parts in zip(entry_ids, entries, strict=True):
            rc = self.refuse(ledger_id, entry_id)
            if rc == OK and ledger_id in self.fenced and not recovery:
                rc = FENCED
            if rc == OK:
                self.stored.setdefault(ledger_id, {})[entry_id] = b"".join(parts)
            if recovery:
                self.recovery_adds.append((ledger_id, entry_id))
            worst = worst or rc
        self._later(lambda: done(worst, entry_ids[0]))

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        stored = self.stored.get(ledger_id, {}).get(entry_id)
        self._later(lambda: done(NO_ENTRY, b"") if stored is None else done(OK, stored))

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        self.batch_reads.append((ledger_id, first, count_max))
        entries = self.stored.get(ledger_id, {})
        run: list[bytes] = []
        size = 0
        while len(run) < count_max and (stored := entries.get(first + len(run))) is not None:
            size += len(stored)
            if size > bytes_max and run:
                break
            run.append(stored)
        rc = self.refuse_reads or (OK if run else NO_ENTRY if entries else NO_LEDGER)
        self._later(lambda: done(rc, run if rc == OK else []))

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = -1) -> None:
        self.fenced.add(ledger_id)
        entries = self.stored.get(ledger_id)
        if entries:
            self.read(ledger_id, max(entries) if entry_id < 0 else entry_id, done)
        else:
            self._later(lambda: done(NO_LEDGER, b""))

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns "": there is no file."""
        return ""

    def delete(self, ledger_id: int, done: Callable[[int, int], None]) -> None:
        self.deleted.append(ledger_id)
        self.stored.pop(ledger_id, None)
        done(OK, ledger_id)

    async def close(self) -> None:
        pass


class RefusingStore(MemoryMetadataStore):
    """A store whose disk is full while `full` is set."""

    full = False

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await asyncio.sleep(0)
        if self.full:
            raise MetadataError("disk full")
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        await asyncio.sleep(0)
        if self.full:
            raise MetadataError("disk full")
        return await super().put_all(puts)


class Recorder:
    """A listener that remembers, in order."""

    def __init__(self) -> None:
        self.added: list[Entry] = []
        self.contexts: list[object] = []
        self.failed: list[object] = []
        self.errors: list[BrokerError] = []
        self.runs = 0
        self.takeovers = 0

    def entries_added(self, entries: list[Entry], added: list[Added], now_ns: int) -> None:
        assert len(entries) == sum(count for _, count, _ in added)
        self.added += entries
        # One for each entry.
        self.contexts += [context for context, count, _ in added for _ in range(count)]
        self.runs += 1

    def add_failed(self, added: list[Added], error: BrokerError) -> None:
        self.failed += [context for context, count, _ in added for _ in range(count)]
        self.errors.append(error)

    def taken_over(self) -> None:
        self.takeovers += 1


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, ns: int) -> None:
        self.now += ns


class World:
    """The environment of managed ledgers, and the storage that survives a crash of the broker."""

    def __init__(
        self,
        metadata: MetadataStore | None = None,
        ledgers: LedgerClient | None = None,
        *,
        cache: EntryCacheSettings = A_CACHE,
        limiter: InflightReadsLimiter | None = None,
        shared_store: bool = False,
    ) -> None:
        self.metadata = metadata or MemoryMetadataStore()
        if shared_store:
            self.metadata.is_shared = True  # type: ignore[misc]  # as if another session had the store
        self.ledgers: FakeLedgers = ledgers or FakeLedgers()  # type: ignore[assignment]  # a test that brings its own client uses that one
        self.clock = Clock()
        self.wall = 1_700_000_000_000
        self.caches = WholeCache(cache)
        self.limiter = limiter or InflightReadsLimiter(0, 0, 0)
        self.environment = ManagedLedgerEnvironment(
            self.metadata,
            on_one_bookie(self.metadata, self.ledgers),
            LedgerIds(self.metadata),
            self.caches.manager,
            Turn(asyncio.get_running_loop().call_soon, self.clock),
            self.clock,
            lambda: self.wall,
            reads_limiter=self.limiter,
        )

    def tick(self) -> None:
        """Does what falls due at this time, as the broker does a few times a second."""
        now_ns = self.clock.now
        self.environment.unsaved_cursors.write_due(now_ns)
        self.environment.reads_limiter.expire_due(now_ns)
        self.environment.read_deadlines.fire_due(now_ns)

    def after_crash(self, **options: Any) -> World:
        """Returns the same storage under a broker that remembers nothing; `options` as for a new world."""
        return World(self.metadata, self.ledgers, **options)

    def copy_after_crash(self) -> World:
        """A copy of the storage as it is at this moment; what the old broker still does is not in it."""
        assert isinstance(self.metadata, MemoryMetadataStore)
        metadata, ledgers = MemoryMetadataStore(), FakeLedgers()
        metadata._values = dict(self.metadata._values)
        metadata._children = {key: set(names) for key, names in self.metadata._children.items()}
        ledgers.stored = {key: dict(entries) for key, entries in self.ledgers.stored.items()}
        ledgers.fenced = set(self.ledgers.fenced)
        return World(metadata, ledgers)

    async def open(
        self, name: str = NAME, keep: bool = True, lease: Lease | None = None, **settings: Any
    ) -> ManagedLedger:
        """Opens a managed ledger; `settings` are fields of `ManagedLedgerSettings`.

        `keep`: its retention removes nothing. `lease`: the condition that this broker has it.
        """
        settings.setdefault("rollover_ns_min", 0)
        ledger = await ManagedLedger.open(
            name,
            self.environment,
            ManagedLedgerSettings(**settings),
            stamp=EntryStamp(timestamp=True, index=True, now_ms=lambda: self.wall),
            lease=lease,
        )
        ledger.context.listener = Recorder()
        if keep:
            ledger.trimming.keep_ms = ledger.trimming.keep_bytes = -1
        return ledger


def recorder(ledger: ManagedLedger) -> Recorder:
    assert isinstance(ledger.context.listener, Recorder)
    return ledger.context.listener


async def until(condition: Callable[[], object]) -> None:
    """Turns the loop until the condition holds; only threads and disks are given time, at most some seconds."""
    for attempt in range(5_000):
        if condition():
            return
        await asyncio.sleep(0 if attempt < 1_000 else 0.001)
    raise AssertionError("the condition never came true")


async def turns(count: int = 10) -> None:
    """Turns the loop so often, whatever it has to do."""
    for _ in range(count):
        await asyncio.sleep(0)


async def fill(ledger: ManagedLedger, count: int, size: int = 10) -> None:
    before = len(recorder(ledger).added)
    for number in range(count):
        ledger.writer.add([b"%0*d" % (size, before + number)], 1, before + number)
    await until(lambda: len(recorder(ledger).added) == before + count)


def numbers(entries: list[Entry]) -> list[int]:
    """Returns the bodies that `fill` wrote."""
    return [int(bytes(entry.body)) for entry in entries]


def at(ledger: ManagedLedger, index: int) -> Position:
    return ledger.ledgers.position_at(index)


def shape(ledger: ManagedLedger) -> list[int]:
    """How many entries each ledger has."""
    return [info.entries for info in ledger.ledgers.infos()]


def indexes(ledger: ManagedLedger) -> list[int | None]:
    """The broker entry metadata's index of everything that was confirmed."""
    return [decode(entry.header).index for entry in recorder(ledger).added]


async def read(cursor: ManagedCursor, entries_max: int = 100, bytes_max: int = PLENTY) -> list[Entry]:
    """Takes, after one request if need be. Raises the error of the request."""
    taken = cursor.take(entries_max, bytes_max)
    if not taken and cursor.has_more():
        arrived = asyncio.Event()
        cursor.request(entries_max, bytes_max, arrived.set)
        await arrived.wait()
        if cursor.last_error is not None:
            raise cursor.last_error
        taken = cursor.take(entries_max, bytes_max)
    return taken


async def read_all(cursor: ManagedCursor, entries_max: int = 100) -> list[int]:
    found: list[int] = []
    while cursor.has_more():
        found += numbers(await read(cursor, entries_max))
    return found


async def all_bodies(ledger: ManagedLedger) -> list[bytes]:
    """Every body from the first entry on, through a cursor of its own."""
    cursor = ledger.cursors.open_non_durable("read-all", EARLIEST)
    bodies: list[bytes] = []
    while cursor.has_more():
        bodies += [bytes(entry.body) for entry in await read(cursor, 7)]
    ledger.cursors.drop_non_durable(cursor)
    return bodies


async def delete(ledger: ManagedLedger) -> None:
    """Deletes an open managed ledger as the broker's deletions do."""
    environment = ledger.environment
    await ledger.abandon()
    await decide_deletion(ledger.name, environment.metadata)
    await delete_managed_ledger(ledger.name, environment.metadata, environment.ledgers, environment.open_tier)
