"""LedgerEntries and Arena: every entry is found, as a run or alone, in its newest version."""

from __future__ import annotations

import ctypes
import mmap
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_stub.disk.arena import BLOCK_BYTES_MAX, Arena
from bookie_stub.disk.write_cache import WriteCaches

LEDGER = 7


def put(cache: WriteCaches, ids: list[int], payloads: list[bytes]) -> None:
    consecutive = range(ids[0], ids[0] + len(ids))
    starts = tuple(accumulate(map(len, payloads[:-1]), initial=0))
    cache.put_run(LEDGER, consecutive if ids == list(consecutive) else ids, b"".join(payloads), starts)


_ids = st.one_of(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda run: list(range(run[0], sum(run)))),
    st.tuples(st.integers(0, 60), st.integers(1, 12)).map(
        lambda run: list(range(run[0], run[0] + 3 * run[1], 3))
    ),
)


@given(st.lists(st.tuples(_ids, st.booleans()), max_size=12), st.integers(1, 400))
def test_write_caches_find_the_newest_version_like_a_dictionary(
    puts: list[tuple[list[int], bool]], size: int
) -> None:
    cache, expected = WriteCaches(1 << 20), dict[int, bytes]()
    for number, (ids, one_by_one) in enumerate(puts):
        payloads = [
            b"%d %d " % (entry_id, number) + b"x" * (size + place % 3) for place, entry_id in enumerate(ids)
        ]
        expected |= zip(ids, payloads, strict=True)
        if one_by_one:
            for entry_id, payload in zip(ids, payloads, strict=True):
                cache.active.put(LEDGER, entry_id, payload)
        else:
            put(cache, ids, payloads)
    if not puts:
        assert cache.get(LEDGER, 0) is None
        return
    (entries,) = cache.entries_of(LEDGER)
    assert list(entries.in_order()) == sorted(expected.items())
    assert entries.ids() == sorted(expected)
    found = {entry_id: cache.get(LEDGER, entry_id) for entry_id in range(100) if entry_id in entries}
    assert found == expected
    assert [entry_id for entry_id in range(100) if entries.get(entry_id) is not None] == sorted(expected)


def test_run_takes_no_memory_per_entry_besides_its_bytes() -> None:
    cache = WriteCaches(1 << 20)
    cache.put_run(LEDGER, range(500), b"x" * 5000, range(0, 5000, 10))
    assert 5000 <= cache.size <= 6500
    assert cache.get(LEDGER, 499) == b"x" * 10


@given(st.lists(st.integers(1, 9000), max_size=30), st.integers(1, 1 << 17))
def test_arena_pieces_do_not_overlap(sizes: list[int], bytes_max: int) -> None:
    arena = Arena(bytes_max)
    pieces = []
    for number, size in enumerate(sizes):
        piece = arena.store(bytes((number,)) * size)
        assert len(piece) == size
        pieces.append(piece)
    assert all(bytes(piece) == bytes((number,)) * len(piece) for number, piece in enumerate(pieces))


@pytest.mark.skipif(sys.platform != "linux", reason="pages are made ahead on Linux alone")
def test_arena_makes_pages_ahead_of_the_pieces() -> None:
    arena = Arena(1 << 30)
    piece = arena.store(b"x")
    address = ctypes.addressof(ctypes.c_char.from_buffer(piece))
    assert 64 <= _pages_present(address, BLOCK_BYTES_MAX) < 100
    # Pieces that are longer than what is made ahead, the last one up to the end of the block.
    pieces = [arena.store(b"y" * (1 << 20)) for _ in range(3)]
    pieces.append(arena.store(b"z" * ((1 << 20) - 1)))
    assert bytes(piece) == b"x"
    assert [piece[-1:] for piece in pieces] == [b"y", b"y", b"y", b"z"]
    assert _pages_present(address, BLOCK_BYTES_MAX) == BLOCK_BYTES_MAX // mmap.PAGESIZE


def _pages_present(address: int, length: int) -> int:
    """Returns how many pages of the memory at `address` have been made."""
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        file.seek(address // mmap.PAGESIZE * 8)
        entries = file.read(length // mmap.PAGESIZE * 8)
    # The top bit of a page's number says that it is in memory.
    return sum(byte >> 7 for byte in entries[7::8])
