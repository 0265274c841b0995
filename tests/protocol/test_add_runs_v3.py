"""Runs of v3 adds equal single requests, and end at every frame that is unusual."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.add_runs_v3 import AddRunV3, begins_run_v3, cut_add_run_v3, encode_add_answers_v3
from protocol.bookie_frame_v3 import encode_add_answer, encode_message, parse_request
from protocol.bookkeeper_api_pb2 import ADD_ENTRY, READ_ENTRY, VERSION_THREE, AddRequest, Request

KEY = b"k" * 20
LENGTH_MAX = 10_000


def request(entry_id: int, payload: bytes = b"", *, txn: int = 5, ledger_id: int = 7) -> Request:
    made = Request()
    made.header.version, made.header.operation, made.header.txnId = VERSION_THREE, ADD_ENTRY, txn
    add = made.addRequest
    add.ledgerId, add.entryId, add.masterKey = ledger_id, entry_id, KEY
    add.body = struct.pack(">qqq", ledger_id, entry_id, -1) + payload
    return made


def frame(entry_id: int, payload: bytes = b"", *, txn: int = 5, ledger_id: int = 7) -> bytes:
    return encode_message(request(entry_id, payload, txn=txn, ledger_id=ledger_id))


def cut(data: bytes, length_max: int = LENGTH_MAX) -> AddRunV3 | None:
    # Behind what was received stands something older, which is none of it.
    return cut_add_run_v3(bytearray(data + data), 0, len(data), length_max)


def cut_all(data: bytes) -> list[AddRunV3]:
    runs = []
    while data:
        run = cut(data)
        assert run is not None
        runs.append(run)
        data = data[run.end :]
    return runs


def records_of(run: AddRunV3) -> list[bytes]:
    ends = (*run.starts[1:], len(run.records))
    return [run.records[start:end] for start, end in zip(run.starts, ends, strict=True)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2**56 - 1), st.integers(0, 2**56 - 1), st.binary(max_size=3)),
        min_size=1,
        max_size=70,
    )
)
def test_runs_and_their_answers_equal_single_requests(adds: list[tuple[int, int, bytes]]) -> None:
    data = b"".join([frame(entry_id, payload, txn=txn) for entry_id, txn, payload in adds])
    runs = cut_all(data)
    assert [entry_id for run in runs for entry_id in run.entry_ids] == [entry_id for entry_id, _, _ in adds]
    bodies = [request(entry_id, payload).addRequest.body for entry_id, _, payload in adds]
    assert [record for run in runs for record in records_of(run)] == [
        len(body).to_bytes(4, "big") + body for body in bodies
    ]
    assert all((run.ledger_id, run.master_key) == (7, KEY) for run in runs)
    answers = [
        encode_add_answers_v3(104, run.ledger_id, run.txns, run.entries, len(run.entry_ids)) for run in runs
    ]
    assert b"".join(answers) == b"".join(
        [encode_add_answer(txn, 104, 7, entry_id) for entry_id, txn, _ in adds]
    )


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
def test_consecutive_adds_are_one_run(count: int) -> None:
    first = 1 << 21
    run = cut(b"".join([frame(first + n, bytes(50), txn=first + 3 * n) for n in range(count)]))
    assert run is not None
    assert run.entry_ids == range(first, first + count)


def test_run_ends_where_a_varint_gets_longer() -> None:
    runs = cut_all(b"".join([frame(n, txn=n) for n in range(100, 200)]))
    assert [run.entry_ids for run in runs] == [range(100, 128), range(128, 200)]


@pytest.mark.parametrize("ledger_id", [7, 127, 128, 1 << 40])
@pytest.mark.parametrize("size", [0, 50, 80, 200, 9000])
def test_run_begins_with_two_adds_of_one_ledger_and_length_only(ledger_id: int, size: int) -> None:
    """And nothing else does: a single request is cheaper than a run of one."""
    first, second, other, longer = (
        frame(entry, bytes(payload), ledger_id=ledger)
        for entry, payload, ledger in [
            (1 << 21, size, ledger_id),
            ((1 << 21) + 1, size, ledger_id),
            ((1 << 21) + 1, size, ledger_id ^ 1),
            ((1 << 21) + 1, size + 1, ledger_id),
        ]
    )
    for behind, begins in (
        (b"", False),
        (second, True),
        (second[:-1], False),
        (other, False),
        (longer, False),
    ):
        data = bytearray(b"abc" + first + behind + first + second)
        assert begins_run_v3(data, 3, 3 + len(first + behind)) == begins, behind[:40]
    run = cut(first + second)
    assert run is not None
    assert list(run.entry_ids) == [1 << 21, (1 << 21) + 1]


@given(st.binary(max_size=80))
def test_begins_run_v3_answers_for_any_bytes(data: bytes) -> None:
    header = b"\0\0\0\x50\x0a\x07\x08\x03\x10\x02\x18"
    for received in (data, header[:4] + data, header + data, (header + data).ljust(84, b"\xff") * 2):
        if len(received) >= 4:
            assert begins_run_v3(bytearray(received), 0, len(received)) in (True, False)


def with_flag() -> Request:
    made = request(1 << 22)
    made.addRequest.flag = AddRequest.RECOVERY_ADD
    return made


def with_write_flags() -> Request:
    made = request(1 << 22)
    made.addRequest.writeFlags = 1
    return made


def with_priority() -> Request:
    made = request(1 << 22)
    made.header.priority = 1
    return made


def with_other_ids(ledger_id: int, entry_id: int) -> Request:
    made = request(1 << 22)
    made.addRequest.ledgerId, made.addRequest.entryId = ledger_id, entry_id
    return made


def too_short() -> Request:
    made = request(1 << 22)
    made.addRequest.body = made.addRequest.body[:23]
    return made


def a_read() -> Request:
    made = Request()
    made.header.version, made.header.operation, made.header.txnId = VERSION_THREE, READ_ENTRY, 5
    made.readRequest.ledgerId, made.readRequest.entryId = 7, 1 << 22
    return made


@pytest.mark.parametrize("count", [0, 1, 70])
@pytest.mark.parametrize(
    "other",
    [
        with_flag(),
        with_write_flags(),
        with_priority(),
        with_other_ids(8, 1 << 22),
        with_other_ids(7, (1 << 22) + 1),
        with_other_ids(7, 1),
        request(-1),
        request(1 << 56),
        request(1 << 22, bytes(LENGTH_MAX)),
        too_short(),
        a_read(),
    ],
)
def test_run_ends_at_a_frame_that_is_no_plain_add_of_its_ledger(count: int, other: Request) -> None:
    data = b"".join([frame((1 << 21) + n) for n in range(count)])
    run = cut(data + encode_message(other))
    if count == 0:
        assert run is None
        return
    # With a wrong id in one of several equal frames all but the first are looked at again, one by one.
    assert run is not None
    assert run.entry_ids in (range(1 << 21, (1 << 21) + count), range(1 << 21, (1 << 21) + 1))
    left = cut_all(data[run.end :])
    assert len(run.entry_ids) + sum(len(run.entry_ids) for run in left) == count


def with_long_number(inside: int) -> bytes:
    """Entry 5, in four bytes."""
    good = frame(1 << 21)
    place = good.index(b"\x10\x80\x80\x80\x01") + 1
    bad = good[:place] + b"\x85\x80\x80\x00" + good[place + 4 :]
    return bad.replace((1 << 21).to_bytes(8, "big"), inside.to_bytes(8, "big"))


@pytest.mark.parametrize("inside", [5, 1 << 21, (1 << 28) + 5])
def test_overlong_varint_is_left_to_a_single_request(inside: int) -> None:
    found = parse_request(with_long_number(inside)[4:])
    assert found is not None
    assert found.addRequest.entryId == 5
    assert cut(with_long_number(inside)) is None
    run = cut(b"".join([frame((1 << 21) + n) for n in range(3)]) + with_long_number(inside))
    assert run is not None
    assert list(run.entry_ids) in ([1 << 21], [*range(1 << 21, (1 << 21) + 3), 5] if inside == 5 else [])


@pytest.mark.parametrize("missing", [1, 20, 60])
def test_incomplete_frame_is_no_run(missing: int) -> None:
    assert cut(frame(1 << 21)[:-missing]) is None


@given(st.integers(0, 90), st.integers(0, 255))
def test_damaged_byte_never_changes_the_add_that_is_read(place: int, byte: int) -> None:
    data = bytearray(frame(1 << 21) * 3)
    data[place % len(data)] = byte
    run = cut(bytes(data))
    if run is not None:
        single = parse_request(bytes(data[4 : 4 + int.from_bytes(data[:4], "big")]))
        assert single is not None
        add = single.addRequest
        assert (run.ledger_id, run.entry_ids[0], run.master_key) == (add.ledgerId, add.entryId, add.masterKey)
        assert records_of(run)[0][4:] == add.body
