"""Runs of v2 adds equal single requests, and end at every frame that is unusual."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.add_runs import AddRun, cut_add_run, encode_add_answers
from protocol.bookie_frame import (
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    AddRequest,
    decode_request,
    encode_add_request,
    encode_add_response,
    encode_read_request,
)

KEY = b"k" * 20
LENGTH_MAX = 10_000


def frame(
    entry_id: int, payload: bytes = b"", *, ledger_id: int = 7, key: bytes = KEY, flags: int = 0
) -> bytes:
    return encode_add_request(struct.pack(">qqq", ledger_id, entry_id, -1) + payload, key, flags)


def cut(data: bytes, start: int = 0) -> AddRun:
    # Behind what was received stands something older, which is none of it.
    run = cut_add_run(bytearray(data + bytes(40) + data), start, len(data), LENGTH_MAX)
    assert run is not None
    assert run.ids == b"".join([entry_id.to_bytes(8, "big") for entry_id in run.entry_ids])
    return run


def records_of(run: AddRun) -> list[bytes]:
    ends = (*run.starts[1:], len(run.records))
    return [run.records[start:end] for start, end in zip(run.starts, ends, strict=True)]


def by_single_requests(frames: list[bytes]) -> list[AddRequest]:
    requests = [decode_request(one[4:]) for one in frames]
    return [request for request in requests if isinstance(request, AddRequest)]


@given(st.lists(st.tuples(st.integers(0, 2**56 - 1), st.binary(max_size=3)), min_size=1, max_size=70))
def test_run_equals_single_requests(adds: list[tuple[int, bytes]]) -> None:
    frames = [frame(entry_id, payload) for entry_id, payload in adds]
    run = cut(b"".join(frames))
    singles = by_single_requests(frames)
    assert run.ledger_id == 7
    assert run.master_key == KEY
    assert list(run.entry_ids) == [single.entry_id for single in singles]
    assert records_of(run) == [single.record for single in singles]
    assert run.end == sum(map(len, frames))


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
@pytest.mark.parametrize("count", [1, 2, 16, 17, 63, 64, 65, 300])
def test_run_of_equal_lengths_equals_single_requests(count: int, size: int) -> None:
    frames = [frame(entry_id, bytes([entry_id % 251]) * size) for entry_id in range(count)]
    run = cut(b"".join(frames))
    assert records_of(run) == [single.record for single in by_single_requests(frames)]
    assert run.entry_ids == range(count)


@pytest.mark.parametrize("size", [10, 5000])
@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 130])
@pytest.mark.parametrize(
    "other",
    [
        frame(99, bytes(10), ledger_id=8),
        frame(99, bytes(10), key=b"K" * 20),
        frame(99, bytes(10), flags=FLAG_RECOVERY_ADD),
        frame(-1, bytes(10)),
        frame(1 << 56, bytes(10)),
        frame(99, bytes(LENGTH_MAX)),
        frame(99, bytes(10))[:4] + b"\3" + frame(99, bytes(10))[5:],
        b"\0\0\0\x2c" + frame(99)[4:],  # too short to hold a LAC
        b"\xff\xff\xff\xff" + frame(99, bytes(10))[4:],
        frame(99, bytes(10))[:-1],
        frame(99)[:43],
        frame(99)[:3],
        encode_read_request(7, 99),
    ],
)
def test_run_ends_at_a_frame_that_is_no_plain_add_of_its_ledger(count: int, size: int, other: bytes) -> None:
    frames = [frame(entry_id, bytes(size)) for entry_id in range(count)]
    run = cut(b"".join(frames) + other)
    assert run.entry_ids == range(count)
    assert run.end == sum(map(len, frames))
    data = b"".join(frames) + other
    following = cut_add_run(data, run.end, len(data), LENGTH_MAX)
    assert following is None or list(following.entry_ids) == [99]


@pytest.mark.parametrize("flags", [0, FLAG_RECOVERY_ADD, FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY])
@pytest.mark.parametrize("size", [10, 5000])
def test_run_has_adds_of_the_same_flags(flags: int, size: int) -> None:
    frames = [frame(entry_id, bytes(size), flags=flags) for entry_id in range(70)]
    other = frame(70, bytes(size), flags=FLAG_RECOVERY_ADD ^ flags & FLAG_RECOVERY_ADD)
    run = cut(b"".join(frames) + other)
    assert (run.flags, run.entry_ids) == (flags, range(70))
    assert records_of(run) == [single.record for single in by_single_requests(frames)]


def test_run_does_not_begin_at_a_flag_that_no_add_has() -> None:
    data = frame(0, flags=FLAG_HIGH_PRIORITY)
    assert cut_add_run(data, 0, len(data), LENGTH_MAX) is None


def test_run_is_cut_from_the_middle_of_the_bytes() -> None:
    frames = [frame(entry_id, bytes(20)) for entry_id in range(5)]
    data = b"xyz" + b"".join(frames)
    assert cut(data, 3).entry_ids == range(5)
    assert cut(data, 3 + len(frames[0])).entry_ids == range(1, 5)


def test_length_limit_excludes_the_length_field_itself() -> None:
    one = frame(0, bytes(100))
    assert cut_add_run(one, 0, len(one), len(one) - 4) is not None
    assert cut_add_run(one, 0, len(one), len(one) - 5) is None


@given(st.lists(st.integers(0, 2**56 - 1), min_size=1, max_size=40), st.sampled_from([0, 101, 104]))
def test_answers_to_a_run_equal_single_answers(entry_ids: list[int], rc: int) -> None:
    run = cut(b"".join(map(frame, entry_ids)))
    expected = b"".join([encode_add_response(2, rc, 7, entry_id) for entry_id in entry_ids])
    assert encode_add_answers(rc, run.ledger_id, run.ids) == expected
