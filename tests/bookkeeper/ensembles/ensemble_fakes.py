"""Bookies in memory that a test can hold back, and ledgers on several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bookkeeper.client.digest import Digest
from bookkeeper.client.ledger_client import AddDone, BatchReadDone, EntryParts
from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.bookies import Bookies, BookieSet
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.own_ledger import OwnLedger
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.ledger_settings import LedgerSettings, QuarantineSettings
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError

LEDGER = 6
OK, NO_LEDGER, NO_ENTRY, IO_ERROR, FENCED = 0, 1, 2, 101, 104


class FakeBookie(MemoryLedgerClient):
    """`held`: adds wait in `adds`. `rc`: adds and batch reads are answered with it. `silent`: batch reads are not."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop.call_soon)
        self._loop = loop
        self.reachable = True
        self.held = False
        self.silent = False
        self.rc = OK
        self.adds: list[Callable[[], None]] = []
        self.added: list[int] = []
        self.asked: list[tuple[int, int]] = []
        """(first, count) of reads."""

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
        if self.rc != OK:
            self._loop.call_soon(done, self.rc, entry_ids[0])
            return

        def take() -> None:
            self.added += entry_ids
            super(FakeBookie, self).add(
                ledger_id, entry_ids, entries, master_key=master_key, recovery=recovery, done=done
            )

        if self.held:
            self.adds.append(take)
        else:
            take()

    def release(self) -> None:
        adds, self.adds = self.adds, []
        for take in adds:
            take()

    def close_now(self) -> None:
        """Answers every request with an I/O error from now on."""
        self._closed = True

    def fail_held(self) -> None:
        self._closed = True
        self.release()

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        self.asked.append((first, count_max))
        if self.silent:
            return
        if self.rc != OK:
            self._loop.call_soon(done, self.rc, [])
            return
        super().batch_read(ledger_id, first, count_max, bytes_max, done)

    def damage(self, entry_id: int, at: int = -1, bits: int = 1) -> None:
        """Flips `bits` of the byte `at`."""
        stored = bytearray(self._ledgers[LEDGER].entries[entry_id])
        stored[at] ^= bits
        self._ledgers[LEDGER].entries[entry_id] = bytes(stored)

    def stored(self, entry_id: int) -> bytes:
        return self._ledgers[LEDGER].entries[entry_id]

    def forget(self, entry_id: int) -> None:
        del self._ledgers[LEDGER].entries[entry_id]

    @property
    def has(self) -> list[int]:
        known = self._ledgers.get(LEDGER)
        return sorted(known.entries) if known else []


class Cluster:
    def __init__(self, bookies: int, settings: LedgerSettings) -> None:
        self.names = [f"b{number}:1" for number in range(bookies)]
        self.bookies = [FakeBookie() for _ in self.names]
        self.now_ns = 0
        self.metadata = MemoryMetadataStore()
        self.set: Bookies = BookieSet(
            self.names,
            dict(zip(self.names, self.bookies, strict=True)).__getitem__,
            now_ns=lambda: self.now_ns,
            quarantine=QuarantineSettings(errors=2, interval_s=60, quarantine_s=600),
        )
        self.ledgers = self.restarted(settings)
        self.own: OwnLedger | None = None
        self.answers: list[tuple[int, int]] = []
        """(entry id, rc) in the order in which they came."""
        self._length = 0

    def restarted(self, settings: LedgerSettings) -> Ledgers:
        """The ledgers of a broker that has just started."""
        loop = asyncio.get_running_loop()
        return Ledgers(
            self.metadata, self.set, settings, call_soon=loop.call_soon, call_later=loop.call_later
        )

    async def begin(self) -> OwnLedger:
        self.own = await self.ledgers.create(LEDGER, {})
        self._adds = self.ledgers.writer(self.own)
        return self.own

    def add(self, *entry_ids: int) -> None:
        for entry_id in entry_ids:
            self.add_run((entry_id,))

    def add_run(self, entry_ids: Sequence[int]) -> None:
        digest: Digest = self.ledgers.digest
        entries = []
        for entry_id in entry_ids:
            body = b"body %d" % entry_id
            self._length += len(body)
            entries.append(digest.seal(LEDGER, entry_id, -1, self._length, b"", body))
        self._adds.add(
            LEDGER,
            entry_ids,
            entries,
            master_key=digest.master_key,
            recovery=False,
            done=lambda rc, number: self.answers.append((number, rc)),
        )

    async def fill(self, count: int) -> None:
        self.add(*range(count))
        await turns()
        assert [rc for _, rc in self.answers] == [OK] * count
        for bookie in self.bookies:
            bookie.asked.clear()

    async def read(
        self, first: int, last: int, ledgers: Ledgers | None = None, bytes_max: int = 1 << 20
    ) -> list[bytes]:
        """Bodies of some entries from `first` on. Raises the read's error."""
        answer: asyncio.Future[tuple[list[Entry], BrokerError | None]] = (
            asyncio.get_running_loop().create_future()
        )
        (ledgers or self.ledgers).read(
            LEDGER, first, last, bytes_max, lambda *values: answer.set_result(values)
        )
        assert not answer.done(), "answered inside the call"
        entries, error = await asyncio.wait_for(answer, 60)
        if error is not None:
            assert entries == []
            raise error
        return [bytes(entry.body) for entry in entries]


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
