"""Nodes of re-replication: paths and values as BookKeeper's AutoRecovery writes them."""

from __future__ import annotations

import pytest

from protocol.underreplication import (
    Mark,
    check_layout,
    decode_checked,
    decode_mark,
    encode_checked,
    encode_layout,
    encode_mark,
    encode_owner,
    encode_vote,
    lock_key,
    mark_key,
    marked_ledger,
    with_replicas,
)


def test_mark_lies_below_four_folders_of_hexadecimal_digits() -> None:
    assert mark_key(7) == "/ledgers/underreplication/ledgers/0000/0000/0000/0007/urL0000000007"
    assert (
        mark_key(0x1234_5678_9ABC)
        == f"/ledgers/underreplication/ledgers/0000/1234/5678/9abc/urL{0x1234_5678_9ABC:010}"
    )
    assert lock_key(7) == "/ledgers/underreplication/locks/urL0000000007"


@pytest.mark.parametrize("ledger_id", [0, 7, 10**10, 2**62])
def test_name_of_a_mark_gives_the_ledger_back(ledger_id: int) -> None:
    assert marked_ledger(mark_key(ledger_id).rpartition("/")[2]) == ledger_id


@pytest.mark.parametrize("name", ["", "urL", "urLx", "L0001", "0000"])
def test_other_names_are_no_marks(name: str) -> None:
    assert marked_ledger(name) is None


def test_values_are_the_text_form() -> None:
    mark = Mark(("10.0.0.1:3181", "b"), 1_700_000_000_000)
    value = b'replica: "10.0.0.1:3181"\nreplica: "b"\nctime: 1700000000000\n'
    assert encode_mark(mark) == value
    assert decode_mark(value) == mark
    assert decode_mark(b'replica: "a"\n') == Mark(("a",), None)
    assert decode_mark(b"") == Mark(())
    assert encode_layout() == b'type: "BASIC"\nversion: 1\n'
    assert encode_owner("b") == encode_vote("b") == b'bookieId: "b"\n'


@pytest.mark.parametrize("value", [b"\xff\xfe", b"replica: 7", b"nonsense"])
def test_other_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        decode_mark(value)


@pytest.mark.parametrize("value", [b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n', b""])
def test_other_layout_is_refused(value: bytes) -> None:
    check_layout(encode_layout())
    with pytest.raises(ValueError, match=r"is not BASIC 1|cannot be read"):
        check_layout(value)


def test_time_of_the_check_is_binary() -> None:
    assert encode_checked(300) == b"\x08\xac\x02"
    assert decode_checked(b"\x08\xac\x02") == 300
    with pytest.raises(ValueError, match="no time"):
        decode_checked(b"\xff")


def test_mark_names_each_lost_bookie_once() -> None:
    mark = Mark(("a",), 5)
    assert with_replicas(mark, ["a"]) is mark
    assert with_replicas(mark, ["b", "a", "b"]) == Mark(("a", "b"), 5)
