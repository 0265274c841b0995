"""BookKeeper's v3 frames: golden bytes, answers written by hand, and malformed packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import bookie_frame as v2
from protocol import bookie_frame_v3 as wire
from protocol.bookkeeper_api_pb2 import (
    ADD_ENTRY,
    BATCH_READ_ENTRY,
    EOK,
    READ_ENTRY,
    START_TLS,
    VERSION_THREE,
    OperationType,
    Request,
    Response,
    StatusCode,
)

KEY = "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
ENTRY = "0000000000000007 0000000000000000 ffffffffffffffff 0000000000000005 9e3e717b 68656c6c6f"
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)


def request(operation: OperationType.ValueType, txn_id: int = 1) -> Request:
    message = Request()
    message.header.version = VERSION_THREE
    message.header.operation = operation
    message.header.txnId = txn_id
    return message


def test_add_and_its_answer_equal_golden_bytes() -> None:
    add = request(ADD_ENTRY)
    add.addRequest.ledgerId, add.addRequest.entryId = 7, 0
    add.addRequest.masterKey, add.addRequest.body = bytes.fromhex(KEY), bytes.fromhex(ENTRY)
    golden = bytes.fromhex(f"00000050 0a06 0803 1002 1801 aa0645 0807 1000 1a14 {KEY} 2229 {ENTRY}")
    assert wire.encode_message(add) == golden
    assert wire.parse_request(memoryview(golden)[4:]) == add
    assert wire.encode_add_answer(1, v2.RC_OK, 7, 0) == bytes.fromhex(
        "00000013 0a06 0803 1002 1801 1000 aa06 06 0800 1007 1800"
    )


def test_read_and_its_answers_equal_golden_bytes() -> None:
    read = request(READ_ENTRY, 79)
    read.readRequest.ledgerId, read.readRequest.entryId = 5169, 0
    assert wire.encode_message(read).hex() == "000000100a0608031001184fa2060508b1281000"
    entry = bytes.fromhex("00000000000014310000000000000000ffffffffffffffff00000000000000041dea400f68616e64")
    assert wire.encode_entry_answer(79, 5169, 0, entry, -1).hex() == (
        "000000490a0608031001184f1000a2063c080010b12818002228" + entry.hex() + "28ffffffffffffffffff01"
    )
    missing = wire.encode_message(wire.answer_to(read, v2.RC_NO_ENTRY))
    assert missing.hex() == "000000160a0608031001184f109303a2060808930310b1281800"


@pytest.mark.parametrize(
    ("operation", "golden"), [(START_TLS, "0000000b0a06080310091852109403"), (BATCH_READ_ENTRY, None)]
)
def test_operation_without_a_part_is_answered_by_the_status_alone(
    operation: OperationType.ValueType, golden: str | None
) -> None:
    answer = wire.answer_to(request(operation, 82), v2.RC_BAD_REQUEST)
    assert [field.name for field, _ in answer.ListFields()] == ["header", "status"]
    assert golden is None or wire.encode_message(answer).hex() == golden


def test_answer_has_version_3_and_no_priority() -> None:
    old = request(READ_ENTRY)
    old.header.version = 2  # type: ignore[assignment]  # no version that v3 knows
    old.header.priority = 100
    header = wire.answer_to(old, v2.RC_BAD_VERSION).header
    assert (header.version, header.HasField("priority")) == (VERSION_THREE, False)


def test_every_result_code_has_its_own_status() -> None:
    codes = {value for name, value in vars(v2).items() if name.startswith("RC_")}
    assert set(wire.STATUS) == codes
    assert set(wire.STATUS.values()) == set(StatusCode.values())


@given(UINT64, st.sampled_from(sorted(wire.STATUS)), INT64, INT64)
def test_add_answer_equals_protobufs_encoding(txn_id: int, rc: int, ledger_id: int, entry_id: int) -> None:
    add = request(ADD_ENTRY, txn_id)
    add.addRequest.ledgerId, add.addRequest.entryId = ledger_id, entry_id
    expected = wire.encode_message(wire.answer_to(add, rc))
    assert wire.encode_add_answer(txn_id, rc, ledger_id, entry_id) == expected


@given(UINT64, INT64, INT64, st.binary(max_size=300), st.none() | INT64)
def test_entry_answer_equals_protobufs_encoding(
    txn_id: int, ledger_id: int, entry_id: int, entry: bytes, lac: int | None
) -> None:
    expected = Response(status=EOK)
    expected.header.CopyFrom(request(READ_ENTRY, txn_id).header)
    part = expected.readResponse
    part.status, part.ledgerId, part.entryId, part.body = EOK, ledger_id, entry_id, entry
    if lac is not None:
        part.maxLAC = lac
    found = wire.encode_entry_answer(txn_id, ledger_id, entry_id, entry, lac)
    assert found == wire.encode_message(expected)


def test_parse_request_refuses_v2_packets() -> None:
    frames = [
        v2.encode_read_request(7, 0),
        v2.encode_fence_request(7, bytes(20)),
        v2.encode_add_request(bytes.fromhex(ENTRY), bytes(20)),
        v2.encode_batch_read_request(1, 2, 3, 4, 5),
        v2.encode_auth_request("plugin", b""),
    ]
    for frame in frames:
        for version in (0, 1, 2, 3, 4, 255):
            assert wire.parse_request(bytes((version,)) + frame[5:]) is None


@pytest.mark.parametrize(
    "packet",
    [
        "",
        "0a06080310011805ff",
        "0a060803104d1805",  # an operation that is not listed
        "0a060803 1001",  # no transaction id
        "0a0608031001184f a20602 08b1",  # cut
        "0a0608031001184f a20602 0801",  # no entry id
    ],
)
def test_parse_request_refuses_malformed_packets(packet: str) -> None:
    assert wire.parse_request(bytes.fromhex(packet)) is None


@given(st.binary(max_size=80))
def test_random_packets_parse_or_are_refused(data: bytes) -> None:
    parsed = wire.parse_request(data)
    assert parsed is None or parsed.IsInitialized()
