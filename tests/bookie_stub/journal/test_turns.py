"""The journal gathers the records of a turn: which groups the loop writes itself, and which go to the thread."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from bookie_stub.journal.journal import BUSY_SYNC_NS_MAX, OWN_BYTES_MAX, OWN_SYNC_NS_MAX, Journal
from protocol.bookie_frame import RC_IO_ERROR, RC_OK
from tests.bookie_stub.conftest import Bench, FaultyFileSystem
from tests.bookie_stub.files import crash


class WatchedFileSystem(FaultyFileSystem):
    """Notes for each group whether the loop has written it, and how many pieces of bytes it had."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread = threading.get_ident()
        self.by_loop: list[bool] = []

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self.by_loop.append(threading.get_ident() == self.loop_thread)
        super().write_and_sync(descriptor, buffers, offset)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Bench, WatchedFileSystem]]:
    bench = Bench(tmp_path)
    bench.file_system = disk = WatchedFileSystem()
    bench.gathers_turns = True
    bench.open()
    # The thread begins the file, reserves space, and fills the blocks for small groups; the loop writes no group before.
    assert await bench.add(1, 0, b"x" * OWN_BYTES_MAX) == RC_OK
    assert await bench.add(2, 0) == RC_OK
    journal_of(bench)._channel.write_ns = 0
    disk.by_loop.clear()
    yield bench, disk
    bench.close()


def journal_of(bench: Bench) -> Journal:
    return bench.running.state.journals.of(1)


async def test_loop_writes_the_records_of_a_turn_as_one_group(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    assert await asyncio.gather(*[bench.start_add(1, entry) for entry in range(1, 4)]) == [RC_OK] * 3
    assert disk.by_loop == [True]
    assert journal_of(bench).queue_length == 0


async def test_answers_come_after_the_call_that_adds(watched: tuple[Bench, WatchedFileSystem]) -> None:
    bench, _ = watched
    added = bench.start_add(1, 1)
    assert not added.done()
    assert await added == RC_OK


async def test_large_group_goes_to_the_thread(watched: tuple[Bench, WatchedFileSystem]) -> None:
    bench, disk = watched
    assert await bench.add(1, 1, b"x" * OWN_BYTES_MAX) == RC_OK
    assert disk.by_loop == [False]


async def test_slow_disk_is_left_to_the_thread_until_it_is_quick(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    channel = journal_of(bench)._channel
    channel.write_ns = BUSY_SYNC_NS_MAX
    assert await bench.add(1, 1) == RC_OK
    assert disk.by_loop == [False]
    channel.write_ns = OWN_SYNC_NS_MAX - 1
    assert await bench.add(1, 2) == RC_OK
    assert disk.by_loop == [False, True]


async def test_loop_that_was_busy_writes_itself_on_a_slower_disk(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    journal = journal_of(bench)
    journal._channel.write_ns = OWN_SYNC_NS_MAX
    # The loop has done nothing since its last group.
    journal._own_end_ns = time.perf_counter_ns() + 10**12
    assert await bench.add(1, 1) == RC_OK
    assert disk.by_loop == [False]
    journal._channel.write_ns = OWN_SYNC_NS_MAX
    journal._own_end_ns = 0
    assert await bench.add(1, 2) == RC_OK
    assert disk.by_loop == [False, True]
    assert journal._own_end_ns


async def test_time_of_a_write_is_that_of_the_quickest_of_late(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    channel = journal_of(bench)._channel
    channel.write_ns = OWN_SYNC_NS_MAX - 1
    disk.may_sync.clear()
    add = bench.start_add(1, 1, b"x" * OWN_BYTES_MAX)
    await bench.until(lambda: "wait" in disk.calls)
    await asyncio.sleep(0.02)
    disk.may_sync.set()
    assert await add == RC_OK
    assert OWN_SYNC_NS_MAX <= channel.write_ns < 2 * OWN_SYNC_NS_MAX
    channel.write_ns = 10**12
    assert await bench.add(1, 2) == RC_OK
    assert channel.write_ns < 10**12


async def test_group_follows_those_that_the_thread_has(watched: tuple[Bench, WatchedFileSystem]) -> None:
    bench, disk = watched
    answered: list[int] = []

    def note(entry: int, _: asyncio.Future[int]) -> None:
        answered.append(entry)

    disk.may_sync.clear()
    adds = [bench.start_add(1, 1, b"x" * OWN_BYTES_MAX)]
    await bench.until(lambda: "wait" in disk.calls)
    adds.append(bench.start_add(1, 2))
    await asyncio.sleep(0)
    assert journal_of(bench).queue_length == 1
    for entry, add in enumerate(adds, 1):
        add.add_done_callback(partial(note, entry))
    disk.may_sync.set()
    assert await asyncio.gather(*adds) == [RC_OK] * 2
    assert answered == [1, 2]
    # The second waited for the thread's answer, and then the loop wrote it.
    assert disk.by_loop == [False, True]
    assert await bench.add(1, 3) == RC_OK
    assert disk.by_loop[-1]


async def test_groups_queue_for_the_thread_on_a_slow_disk(watched: tuple[Bench, WatchedFileSystem]) -> None:
    bench, disk = watched
    journal_of(bench)._channel.write_ns = 10 * BUSY_SYNC_NS_MAX
    disk.may_sync.clear()
    adds = [bench.start_add(1, 1)]
    await bench.until(lambda: "wait" in disk.calls)
    adds.append(bench.start_add(1, 2))
    await asyncio.sleep(0)
    assert not journal_of(bench)._waiting
    disk.may_sync.set()
    assert await asyncio.gather(*adds) == [RC_OK] * 2
    assert disk.by_loop == [False, False]


async def test_group_that_the_loop_cannot_write_fails_alone(
    watched: tuple[Bench, WatchedFileSystem], tmp_path: Path
) -> None:
    bench, disk = watched
    disk.fails_once = True
    disk.fails["write"] = errno.EIO
    assert await asyncio.gather(*[bench.start_add(1, entry) for entry in (1, 2)]) == [RC_IO_ERROR] * 2
    assert disk.by_loop == [True]
    assert await bench.add(1, 3) == RC_OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 3) == (RC_OK, b"payload")
    after.close()


async def test_adds_answered_with_ok_are_kept_through_failures(
    watched: tuple[Bench, WatchedFileSystem], tmp_path: Path
) -> None:
    bench, disk = watched
    answers: dict[int, int] = {}

    def note(entry: int, done: asyncio.Future[int]) -> None:
        answers[entry] = done.result()

    rng = random.Random(7)
    for entry in range(1, 400):
        bench.start_add(1, entry, b"%d" % entry).add_done_callback(partial(note, entry))
        if rng.random() < 0.05:
            disk.fails["write"] = errno.EIO
            disk.writes_half = rng.random() < 0.5
        if rng.random() < 0.1:
            disk.fails.clear()
        if rng.random() < 0.5:
            await asyncio.sleep(rng.choice([0, 0.001]))
    disk.fails.clear()
    await bench.until(lambda: len(answers) == 399)
    assert set(answers.values()) == {RC_OK, RC_IO_ERROR}
    assert set(disk.by_loop) == {True, False}
    after = crash(bench, tmp_path)
    for entry in [entry for entry, rc in answers.items() if rc == RC_OK]:
        assert await after.read(1, entry) == (RC_OK, b"%d" % entry)
    after.close()
