"""Reads share loads, never serve an old version, delay no add, and end with a stop."""

from __future__ import annotations

import asyncio
import errno
import random
import threading

import pytest

from bookie_stub.disk.read_cache import POLICIES
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.ledgers.test_add_runs import add_run

OK, NO_LEDGER, NO_ENTRY, IO_ERROR = 0, 1, 2, 101


async def begun(bench: Bench, reads: int = 1) -> None:
    """Waits until so many reads of entry logs stand at the closed gate."""
    await bench.until(lambda: bench.file_system.reads >= reads)


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("bookie-read")]


async def test_hundred_reads_at_once_share_one_load(bench: Bench) -> None:
    bookie = bench.open()
    await bench.add_all(1, range(300))
    await bench.checkpoint()
    answers = await asyncio.gather(*(bench.start_read(1, entry) for entry in range(200)))
    assert answers == [(OK, b"%d payload" % entry) for entry in range(200)]
    assert bookie.stats.read_cache_misses == 1
    assert bookie.stats.read_cache_hits == 199


async def test_reads_at_once_share_one_load_when_the_cache_keeps_none_of_it(bench: Bench) -> None:
    """The cache keeps none of the entries: half of it is more than one entry, so each load brings two."""
    bookie = bench.open(read_cache_bytes=800, readahead_entries=1, read_cache_policy="ring")
    await bench.add_all(1, range(6), b"x" * 400)
    await bench.checkpoint()
    answers = await asyncio.gather(*(bench.start_read(1, entry) for entry in range(6)))
    assert answers == [(OK, b"%d " % entry + b"x" * 400) for entry in range(6)]
    assert bookie.state.read_cache.count == 0
    assert bookie.stats.read_cache_misses == 3


async def test_batch_reads_at_once_share_one_load(bench: Bench) -> None:
    bookie = bench.open(readahead_entries=1000)
    await bench.add_all(1, range(300))
    await bench.checkpoint()
    for first in range(0, 300, 100):
        assert (await bench.batch(1, first, 100))[1] == [
            b"%d payload" % entry for entry in range(first, first + 100)
        ]
    assert bookie.stats.read_cache_misses == 1
    assert bookie.stats.read_requests.ok.count == 3
    assert bookie.stats.read_entries.ok.count == 300


async def test_batch_read_marks_its_entries_as_served(bench: Bench) -> None:
    """The cache has space for 8 entries and a load has 6: served entries are evicted, waiting ones stay."""
    bookie = bench.open(read_cache_policy="served-first", read_cache_bytes=8 * 448)
    await bench.add_all(1, range(40), b"x" * 400)
    await bench.checkpoint()
    for first, count in ((0, 6), (6, 3), (20, 1)):
        assert len((await bench.batch(1, first, count))[1]) == count
    assert bookie.stats.readahead_entries.sum == 3 * 5
    for entry in (9, 10, 11):
        await bench.read(1, entry)
    assert bookie.stats.read_cache_misses == 3


async def test_waiting_read_is_served_when_the_load_before_it_fails(bench: Bench) -> None:
    bench.open(readahead_entries=3)
    await bench.add_all(1, range(9))
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    bench.file_system.fails_once = True
    bench.file_system.fails["read"] = errno.EIO
    reads = [bench.start_read(1, entry) for entry in (0, 1, 5)]
    await begun(bench)
    bench.file_system.may_read.set()
    assert await asyncio.gather(*reads) == [(IO_ERROR, b""), (OK, b"1 payload"), (OK, b"5 payload")]
    assert await bench.read(1, 0) == (OK, b"0 payload")


async def test_running_load_delays_neither_other_ledgers_nor_hits(bench: Bench) -> None:
    bench.open(readahead_entries=3)
    for ledger in (1, 2):
        await bench.add_all(ledger, range(9))
    await bench.checkpoint()
    await bench.read(1, 0)
    await bench.read(2, 0)
    bench.file_system.may_read.clear()
    slow = [bench.start_read(1, 5), bench.start_read(1, 6)]
    await begun(bench, 3)
    assert await bench.read(1, 1) == (OK, b"1 payload")
    assert await bench.read(2, 1) == (OK, b"1 payload")
    other = bench.start_read(2, 5)
    await begun(bench, 4)  # in a thread of its own, beside the first
    bench.file_system.may_read.set()
    assert await asyncio.gather(*slow, other) == [(OK, b"%d payload" % entry) for entry in (5, 6, 5)]


async def test_read_pool_starts_one_thread_for_sequential_reads_and_none_for_hits(bench: Bench) -> None:
    bench.open(readahead_entries=3)
    await bench.add_all(1, range(40))
    await bench.read(1, 7)
    assert not reader_threads()
    await bench.checkpoint()
    for entry in range(40):
        await bench.read(1, entry)
    assert len(reader_threads()) == 1


async def test_adds_are_answered_while_loads_run(bench: Bench) -> None:
    """All reader threads stand still at the disk: adds, fences and checkpoints go on."""
    bookie = bench.open(read_threads=2)
    for ledger in range(1, 6):
        await bench.add_all(ledger, range(9))
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    reads = [bench.start_read(ledger, entry) for ledger in range(1, 6) for entry in (0, 3)]
    await begun(bench, 2)
    assert bookie.state.read_pool.queue_length == 3
    await bench.add_all(7, range(100))
    assert (await bench.fence(7))[0] == OK
    await bench.checkpoint()
    assert not any(read.done() for read in reads)
    bench.file_system.may_read.set()
    assert {rc for rc, _ in await asyncio.gather(*reads)} == {OK}


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
async def test_read_cache_drops_an_entry_rewritten_during_its_load(
    bench: Bench, policy: str, flushed: bool
) -> None:
    """With a flush the write cache no longer has the new version when the load comes back with the old one."""
    bookie = bench.open(read_cache_policy=policy)
    await bench.add_all(1, range(6), b"old")
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    first = bench.start_read(1, 0)
    await begun(bench)
    assert await bench.add(1, 2, b"new") == OK
    if flushed:
        await bench.checkpoint()
    waiting = bench.start_read(1, 2)
    bench.file_system.may_read.set()
    assert await first == (OK, b"0 old")
    assert await waiting == (OK, b"new")
    if not flushed:
        assert bookie.state.read_cache.count == 5
        await bench.checkpoint()
    assert await bench.read(1, 2) == (OK, b"new")
    assert (await bench.batch(1, 1, 3))[1] == [b"1 old", b"new", b"3 old"]


async def test_batch_read_serves_the_version_added_during_its_load(bench: Bench) -> None:
    bench.open()
    await bench.add_all(1, range(4), b"old")
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    answered: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
    assert bench.bookie is not None
    bench.bookie.batch_read(1, 0, 9, 1 << 20, lambda rc, found: answered.set_result(found))
    await begun(bench)
    assert await bench.add(1, 2, b"new") == OK
    bench.file_system.may_read.set()
    assert [entry[36:] for entry in await answered] == [b"0 old", b"1 old", b"new", b"3 old"]


async def test_batch_read_after_a_rewrite_serves_the_new_version(bench: Bench) -> None:
    """The new version is in memory when the load begins, and its flush ends before the load does."""
    bookie = bench.open()
    await bench.add_all(1, range(6), b"old")
    await bench.checkpoint()
    assert await bench.add(1, 2, b"new") == OK
    bench.file_system.may_read.clear()
    batch = asyncio.ensure_future(bench.batch(1, 0, 5))
    await begun(bench)  # the index has been asked, the log not yet
    waiting = bench.start_read(1, 2)
    await bench.checkpoint()
    bench.file_system.may_read.set()
    assert await batch == (OK, [b"0 old", b"1 old", b"new", b"3 old", b"4 old"])
    assert await waiting == (OK, b"new")
    assert await bench.read(1, 2) == (OK, b"new")
    assert bookie.stats.read_cache_misses == 2


async def test_batch_read_completes_when_a_flush_overtakes_each_of_its_loads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.open()
    await bench.add_all(1, range(4))
    await bench.checkpoint()
    read = bench.file_system.read
    overtaken: list[int] = []

    async def overtake() -> None:
        overtaken.append(await bench.add(2, len(overtaken)))
        await bench.checkpoint()

    def read_late(descriptor: int, size: int, offset: int) -> bytes:
        asyncio.run_coroutine_threadsafe(overtake(), bench.loop).result(60)
        return read(descriptor, size, offset)

    monkeypatch.setattr(bench.file_system, "read", read_late)
    assert await bench.batch(1, 0, 9) == (OK, [b"%d payload" % entry for entry in range(4)])
    assert len(overtaken) >= 4


@pytest.mark.parametrize("policy", POLICIES)
async def test_rewritten_cached_entry_is_served_new_after_the_flush(bench: Bench, policy: str) -> None:
    bench.open(read_cache_policy=policy)
    await bench.add_all(1, range(4), b"old")
    bench.reopen(read_cache_policy=policy)  # so that the ledger's last entry is not known
    assert await bench.read(1, 0) == (OK, b"0 old")
    assert await bench.add(1, 1, b"newer") == OK
    assert await bench.read(1, 1) == (OK, b"newer")
    await bench.checkpoint()
    assert await bench.read(1, 1) == (OK, b"newer")
    assert await bench.add(1, 3, b"newest") == OK
    await bench.checkpoint()
    assert (await bench.batch(1, 0, 9))[1] == [b"0 old", b"newer", b"2 old", b"newest"]


@pytest.mark.parametrize("checkpoint", [False, True])
async def test_read_answers_no_ledger_when_it_is_deleted_during_the_load(
    bench: Bench, checkpoint: bool
) -> None:
    bookie = bench.open()
    await bench.add_all(1, range(6), b"old")
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    first, second = bench.start_read(1, 0), bench.start_read(1, 3)
    await begun(bench)
    bookie.delete_ledger(1)
    if checkpoint:
        await bench.checkpoint()
    third = bench.start_read(1, 2)
    bench.file_system.may_read.set()
    assert (await first)[0] in (OK, NO_LEDGER)  # it was asked for before the ledger was deleted
    assert (await second)[0] in (OK, NO_LEDGER)
    assert await third == (NO_LEDGER, b"")
    assert await bench.read(1, 0) == (NO_LEDGER, b"")
    await bench.checkpoint()
    assert await bench.batch(1, 0, 9) == (NO_LEDGER, [])


async def test_close_answers_reads_that_wait_for_a_load(bench: Bench) -> None:
    bookie = bench.open(readahead_entries=0)
    await bench.add_all(1, range(6))
    await bench.checkpoint()
    bench.file_system.may_read.clear()
    reads = [bench.start_read(1, entry) for entry in (0, 1, 2)]
    await begun(bench)
    bench.file_system.may_read.set()
    bookie.close()
    assert await asyncio.gather(*reads) == [(OK, b"0 payload"), (IO_ERROR, b""), (IO_ERROR, b"")]
    assert await bench.read(1, 4) == (IO_ERROR, b"")
    assert await bench.read(1, -1) == (IO_ERROR, b"")
    assert not reader_threads()


async def test_read_is_never_answered_inside_the_call(bench: Bench) -> None:
    bookie = bench.open()
    await bench.add_all(1, range(4))
    await bench.checkpoint()
    await bench.read(1, 0)
    answers: list[int] = []
    for entry in (0, 1, -1, 9, -7):
        bookie.read(1, entry, lambda rc, _: answers.append(rc))
        bookie.batch_read(1, entry, 2, 1000, lambda rc, _: answers.append(rc))
    bookie.read(2, 0, lambda rc, _: answers.append(rc))
    assert not answers
    await bench.until(lambda: len(answers) == 11)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
async def test_reads_serve_the_newest_version_in_random_histories(
    bench: Bench, policy: str, seed: int
) -> None:
    """Adds alone and in runs, rewrites, reads, checkpoints and deletions at random, with caches far too small for it
    all, and flushes that end at any time."""
    rng = random.Random(seed)
    bookie = bench.open(
        read_cache_policy=policy,
        read_cache_bytes=rng.choice((0, 3000, 20_000)),
        readahead_entries=rng.choice((0, 5, 100)),
        readahead_stops_at_gap=rng.random() < 0.5,
        write_cache_bytes=40_000,
        entry_log_bytes_max=30_000,
    )
    newest: dict[tuple[int, int], bytes] = {}
    ledgers = [1, 2, 3]
    for step in range(700):
        ledger, entry = rng.choice(ledgers), rng.randrange(40)
        what = rng.random()
        if what < 0.2:
            payload = b"%d " % step + rng.randbytes(rng.randrange(300))
            assert await bench.add(ledger, entry, payload) == OK
            newest[ledger, entry] = payload
        elif what < 0.3:
            ids = range(entry, entry + rng.randrange(1, 9))
            entries = ids if rng.random() < 0.7 else rng.choices(ids, k=len(ids))
            payload = b"%d " % step + rng.randbytes(rng.randrange(300))
            assert await add_run(bench, ledger, entries, payload) == OK
            newest |= {(ledger, each): payload + b" %d" % place for place, each in enumerate(entries)}
        elif what < 0.35:
            bookie.checkpoints.start()  # it ends while others go on
        elif what < 0.4:
            await bench.checkpoint()
        elif what < 0.41:
            bookie.delete_ledger(ledger)
            ledgers[ledgers.index(ledger)] = max(ledgers) + 1
            newest = {key: payload for key, payload in newest.items() if key[0] != ledger}
        elif what < 0.8:
            entries = [rng.randrange(40) for _ in range(rng.randrange(1, 6))]
            for entry, found in zip(
                entries,
                await asyncio.gather(*(bench.start_read(ledger, each) for each in entries)),
                strict=True,
            ):
                expected = newest.get((ledger, entry))
                assert found == (OK, expected) if expected is not None else found[0] in (NO_ENTRY, NO_LEDGER)
        else:
            count = rng.randrange(1, 50)
            expected_run: list[bytes] = []
            while len(expected_run) < count and (ledger, entry + len(expected_run)) in newest:
                expected_run.append(newest[ledger, entry + len(expected_run)])
            assert (await bench.batch(ledger, entry, count))[1] == expected_run
    assert bookie.stats.read_cache_misses > 50
