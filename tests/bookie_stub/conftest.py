"""Shared by all tests of the bookie: `Bench` drives a bookie by coroutines, `FaultyFileSystem` fails on request."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, frame
from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.digest import seal
from tests.bookie_stub.bookie_process import Process
from tests.support.bookie_settings import for_directory

MASTER_KEY = b"k" * 20
JAVA = Path(__file__).parent / "java"
HANG_S = 60
"""A condition that takes longer is taken for a hang.

No test measures with it: one sync may take seconds on a disk that others keep busy.
"""


def entry_of(ledger: int, entry: int, payload: bytes = b"payload") -> bytes:
    return KEY.pack(ledger, entry) + KEY.pack(entry - 1, len(payload)) + b"crc." + payload


def record_of(ledger: int, entry: int, payload: bytes = b"payload") -> bytes:
    return frame(entry_of(ledger, entry, payload))


def signed(ledger: int, entry: int, payload: bytes) -> bytes:
    """An entry with the digest that Pulsar's brokers make."""
    return b"".join(seal(ledger, entry, entry - 1, (entry + 1) * len(payload), b"", payload))


class FaultyFileSystem(FileSystem):
    """`fails` maps operations to the errno that they raise.

    They are write, sync_data, allocate, create, open_past_cache, truncate and read.
    """

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.reads = 0
        """Reads of entry logs that have begun."""
        self.may_read = threading.Event()
        """Cleared: reads of entry logs wait."""
        self.may_read.set()
        self.may_sync = threading.Event()
        """Cleared: a sync that will not fail waits, and "wait" is among the calls."""
        self.may_sync.set()
        self.writes_half = False
        self.fails_once = False
        self.failures = 0
        self.share: Callable[[Path], float] | None = None
        """Share of the disk in use, by path; None: that of the real disk."""
        self.free: int | None = None
        """Free bytes of every disk; None: those of the real disk."""
        self.calls: list[str] = []

    def _check(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.fails:
            number = self.fails[operation]
            if self.fails_once:
                self.fails.clear()
            self.failures += 1
            raise OSError(number, f"{operation} fails on purpose")

    def create(self, path: Path) -> int:
        self._check("create")
        return super().create(path)

    def open_past_cache(self, path: Path) -> int:
        self._check("open_past_cache")
        return super().open_past_cache(path)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        self._check("allocate")
        super().allocate(descriptor, offset, length)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        self.reads += 1
        assert self.may_read.wait(60), "the test left the gate closed"
        self._check("read")
        return super().read(descriptor, size, offset)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if "write" in self.fails and self.writes_half:
            # One buffer may go past the page cache, which takes aligned memory alone.
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            super().write(descriptor, (data[: len(data) // 2],), offset)
        self._check("write")
        super().write(descriptor, buffers, offset)

    def sync_data(self, descriptor: int) -> None:
        self._check("sync_data")
        if not self.may_sync.is_set():
            self.calls.append("wait")
            assert self.may_sync.wait(60), "the test left the gate closed"
        super().sync_data(descriptor)

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self.write(descriptor, buffers, offset)
        self.sync_data(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        self._check("truncate")
        super().truncate(descriptor, length)

    def share_taken(self, path: Path) -> float:
        return super().share_taken(path) if self.share is None else self.share(path)

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free

    def no_space(self) -> None:
        self.fails = dict.fromkeys(("write", "allocate", "create"), errno.ENOSPC)


def _answer(answered: asyncio.Future[int], rc: int, _entry_id: int) -> None:
    answered.set_result(rc)


class Bench:
    """Opens bookies on one directory, one after the other, and asks them things."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file_system = FaultyFileSystem()
        self.loop = asyncio.get_running_loop()
        self.bookie: Bookie | None = None
        self.metadata: ZooKeeperLedgers | None = None
        """The metadata store of the next bookie; None: it has none."""
        self.gathers_turns = False
        """The next bookie gathers the records of a turn, as bookies of a process do, and may write them in the loop."""

    def open(self, **settings: object) -> Bookie:
        self.bookie = Bookie.open(
            for_directory(self.directory, **settings),
            self.loop.call_soon_threadsafe,
            file_system=self.file_system,
            metadata=self.metadata,
            at_end_of_turn=(lambda run: self.loop.call_soon(run, 0)) if self.gathers_turns else None,
        )
        return self.bookie

    @property
    def running(self) -> Bookie:
        """The open bookie."""
        assert self.bookie is not None
        return self.bookie

    def close(self) -> None:
        if self.bookie is not None:
            self.bookie.close()
            self.bookie = None

    def reopen(self, **settings: object) -> Bookie:
        self.close()
        return self.open(**settings)

    def start_add(
        self,
        ledger: int,
        entry: int,
        payload: bytes = b"payload",
        *,
        key: bytes = MASTER_KEY,
        recovery: bool = False,
    ) -> asyncio.Future[int]:
        assert self.bookie is not None
        answered: asyncio.Future[int] = self.loop.create_future()
        record = record_of(ledger, entry, payload)
        self.bookie.adds.add(ledger, entry, record, key, recovery, lambda rc, _: answered.set_result(rc))
        return answered

    async def add_all(self, ledger: int, entries: Iterable[int], payload: bytes = b"payload") -> None:
        """Payloads are told apart by the entry's id in front."""
        adds = [self.start_add(ledger, entry, b"%d " % entry + payload) for entry in entries]
        assert set(await asyncio.gather(*adds)) <= {0}

    async def add_signed(self, ledger: int, entries: Iterable[int], payload: bytes) -> None:
        """Entries that `signed` makes."""
        assert self.bookie is not None
        for entry in entries:
            answered: asyncio.Future[int] = self.loop.create_future()
            record = frame(signed(ledger, entry, payload))
            self.bookie.adds.add(ledger, entry, record, MASTER_KEY, False, partial(_answer, answered))
            assert await asyncio.wait_for(answered, HANG_S) == 0

    async def add(
        self,
        ledger: int,
        entry: int,
        payload: bytes = b"payload",
        *,
        key: bytes = MASTER_KEY,
        recovery: bool = False,
    ) -> int:
        return await asyncio.wait_for(
            self.start_add(ledger, entry, payload, key=key, recovery=recovery), HANG_S
        )

    def start_read(self, ledger: int, entry: int) -> asyncio.Future[tuple[int, bytes]]:
        """(rc, payload)"""
        assert self.bookie is not None
        answered: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
        self.bookie.read(ledger, entry, lambda rc, found: answered.set_result((rc, found[36:])))
        return answered

    async def read(self, ledger: int, entry: int) -> tuple[int, bytes]:
        return await asyncio.wait_for(self.start_read(ledger, entry), HANG_S)

    async def batch(self, ledger: int, first: int, count: int) -> tuple[int, list[bytes]]:
        assert self.bookie is not None
        answered: asyncio.Future[tuple[int, list[bytes]]] = self.loop.create_future()
        self.bookie.batch_read(ledger, first, count, 5 << 20, lambda rc, got: answered.set_result((rc, got)))
        rc, entries = await asyncio.wait_for(answered, HANG_S)
        return rc, [entry[36:] for entry in entries]

    async def fence(self, ledger: int, key: bytes = MASTER_KEY) -> tuple[int, bytes]:
        assert self.bookie is not None
        answered: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
        self.bookie.fence(ledger, key, lambda rc, found: answered.set_result((rc, found[36:])))
        return await asyncio.wait_for(answered, HANG_S)

    async def checkpoint(self) -> None:
        """Starts a checkpoint and waits until everything added so far is in the entry logs."""
        assert self.bookie is not None
        self.bookie.checkpoints.start()
        await self.until(lambda: self.bookie is not None and not self.bookie.checkpoints.running)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
                await asyncio.sleep(0.001)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A bookie process of its own, killed at the end if it still runs."""
    process = Process(tmp_path / "data")
    yield process
    if process.process is not None and process.process.poll() is None:
        process.process.kill()
        process.process.communicate()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.file_system.fails.clear()
    bench.file_system.may_read.set()
    bench.file_system.may_sync.set()
    bench.close()


@pytest.fixture
async def written(bench: Bench) -> Bench:
    """Two ledgers of 30 entries in finished logs, the second one fenced; the bookie is down."""
    bench.open(entry_log_bytes_max=20_000)
    await bench.add_signed(1, range(30), b"a" * 200)
    await bench.add_signed(2, range(30), b"b" * 300)
    assert (await bench.fence(2))[0] == 0
    await bench.checkpoint()
    bench.close()
    return bench
