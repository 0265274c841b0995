"""The codec of ledger metadata: bytes as recorded, and BookKeeper's three format versions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ledger_metadata import (
    VERSION_LINE,
    DigestType,
    LedgerMetadata,
    LedgerMetadataError,
    LedgerSegment,
    LedgerState,
    decode,
    encode,
    ledger_key,
)

BOOKKEEPERS = LedgerMetadata(
    (LedgerSegment(("127.0.0.1:3181", "127.0.0.1:3182")),),
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    created_ms=1_700_000_000_000,
    creator_token=12345,
)
BOOKKEEPERS_BYTES = VERSION_LINE + bytes.fromhex(
    "47 0802 1002 1800 20ffffffffffffffffff01 2801 3222 0a0e"
    + b"127.0.0.1:3181".hex()
    + "0a0e"
    + b"127.0.0.1:3182".hex()
    + "1000 3803 4200 4802 5080d095ffbc31 60b960"
)

RECORDED = [
    (BOOKKEEPERS, BOOKKEEPERS_BYTES),
    (
        LedgerMetadata(
            (LedgerSegment(("a:1", "b:2", "c:3")), LedgerSegment(("a:1", "d:4", "c:3"), 17)),
            LedgerState.IN_RECOVERY,
            ensemble_size=3,
            write_quorum=2,
            ack_quorum=2,
            digest_type=DigestType.HMAC,
            password=b"pw\0\xff",
            created_ms=1_700_000_000_000,
            custom={
                "application": b"pulsar",
                "component": b"managed-ledger",
                "pulsar/managed-ledger": b"public/default/persistent/t",
            },
            creator_token=-5,
        ),
        VERSION_LINE
        + bytes.fromhex(
            "bf01 0802 1003 1800 20ffffffffffffffffff01 2802 3211 0a03613a31 0a03623a32 0a03633a33 1000"
            "3211 0a03613a31 0a03643a34 0a03633a33 1011 3802 4204707700ff 4802 5080d095ffbc31"
            "5a15 0a0b6170706c69636174696f6e 120670756c736172"
            "5a1b 0a09636f6d706f6e656e74 120e6d616e616765642d6c6564676572"
            "5a34 0a1570756c7361722f6d616e616765642d6c6564676572"
            "121b7075626c69632f64656661756c742f70657273697374656e742f74 60fbffffffffffffffff01"
        ),
    ),
    (
        LedgerMetadata(
            (LedgerSegment(("bookie-ü",)),),
            LedgerState.CLOSED,
            length=2**40,
            last_entry_id=2**33,
            digest_type=DigestType.CRC32,
            custom={"": b""},
            creator_token=2**63 - 1,
        ),
        VERSION_LINE
        + bytes.fromhex(
            "38 0801 1001 18808080808020 208080808020 2803 320d 0a09626f6f6b69652dc3bc 1000 3801 4200 4801"
            "5a04 0a00 1200 60ffffffffffffffff7f"
        ),
    ),
    (
        LedgerMetadata((), digest_type=DigestType.DUMMY),
        VERSION_LINE + bytes.fromhex("1b 0801 1001 1800 20ffffffffffffffffff01 2801 3804 4200 4801 6000"),
    ),
]
"""The first from BookKeeper; the others made by the hand-written encoder that this codec replaced."""


@pytest.mark.parametrize(("metadata", "value"), RECORDED)
def test_encode_writes_the_recorded_bytes(metadata: LedgerMetadata, value: bytes) -> None:
    assert encode(metadata) == value
    assert decode(value) == metadata


NAMES = st.text(max_size=20)
METADATA = st.builds(
    LedgerMetadata,
    st.lists(
        st.builds(LedgerSegment, st.lists(NAMES, max_size=3).map(tuple), st.integers(0, 2**40)), max_size=3
    ).map(tuple),
    st.sampled_from(LedgerState),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(DigestType),
    st.binary(max_size=20),
    st.none() | st.integers(0, 2**50),
    st.dictionaries(NAMES, st.binary(max_size=20), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(deadline=None)
@given(METADATA)
def test_decode_reverses_encode(metadata: LedgerMetadata) -> None:
    assert decode(encode(metadata)) == metadata


TEXT = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 30
lastEntryId: 2
state: CLOSED
segment {
  ensembleMember: "a:1"
  ensembleMember: "b:1"
  ensembleMember: "c:1"
  firstEntryId: 0
}
digestType: HMAC
password: "secret"
ackQuorumSize: 1
"""
MEMBERS = ("a:1", "b:1", "c:1")


def test_decode_reads_version_2() -> None:
    assert decode(TEXT) == LedgerMetadata(
        (LedgerSegment(MEMBERS),), LedgerState.CLOSED, 30, 2, 3, 2, 1, DigestType.HMAC, b"secret"
    )


def test_absent_ack_quorum_is_the_write_quorum() -> None:
    assert decode(TEXT.replace(b"ackQuorumSize: 1", b"")).ack_quorum == 2


def test_absent_last_entry_is_none() -> None:
    assert decode(TEXT.replace(b"lastEntryId: 2", b"")).last_entry_id == -1


LINES = b"BookieMetadataFormatVersion\t1\n2\n3\n30\n0\ta:1\tb:1\tc:1\n5\ta:1\td:1\tc:1"


@pytest.mark.parametrize(
    ("end", "state", "last_entry_id"),
    [
        (b"", LedgerState.OPEN, -1),
        (b"\n", LedgerState.OPEN, -1),
        (b"\n7\tCLOSED", LedgerState.CLOSED, 7),
        (b"\n7\tCLOSED\n", LedgerState.CLOSED, 7),
        (b"\n-102\tCLOSED", LedgerState.IN_RECOVERY, -1),
    ],
)
def test_decode_reads_version_1(end: bytes, state: LedgerState, last_entry_id: int) -> None:
    segments = (LedgerSegment(MEMBERS), LedgerSegment(("a:1", "d:1", "c:1"), 5))
    assert decode(LINES + end) == LedgerMetadata(
        segments, state, 30, last_entry_id, 3, 2, 2, DigestType.CRC32
    )


UNREADABLE = {
    "empty": b"",
    "no version": b"metadata",
    "version 4": TEXT.replace(b"\t2", b"\t4"),
    "version 3 without a length": VERSION_LINE,
    "cut off": BOOKKEEPERS_BYTES[:-1],
    "a byte more": BOOKKEEPERS_BYTES + b"\0",
    "no fields": VERSION_LINE + b"\0",
    "version 2 without fields": b"BookieMetadataFormatVersion\t2\n",
    "no state": TEXT.replace(b"state: CLOSED", b""),
    "unknown state": TEXT.replace(b"CLOSED", b"DONE"),
    "unknown state in binary": BOOKKEEPERS_BYTES.replace(b"\x28\x01", b"\x28\x09"),
    "unknown digest in binary": BOOKKEEPERS_BYTES.replace(b"\x38\x03", b"\x38\x09"),
    "version 1 without fields": b"BookieMetadataFormatVersion\t1\n",
    "version 1 with an empty line": LINES + b"\n\n7\tCLOSED",
    "version 1 without numbers": LINES.replace(b"30", b"x"),
}


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_decode_refuses_values_without_valid_metadata(value: bytes) -> None:
    with pytest.raises(LedgerMetadataError, match="ledger metadata cannot be read"):
        decode(value)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_decode_of_random_bytes_raises_only_its_own_error(message: bytes) -> None:
    with contextlib.suppress(LedgerMetadataError):
        decode(VERSION_LINE + bytes((len(message),)) + message)


def test_segment_of_an_entry_is_the_last_that_begins_before_it() -> None:
    first, second = LedgerSegment(("a",)), LedgerSegment(("b",), 5)
    metadata = LedgerMetadata((first, second))
    assert metadata.segment_of(4) == (first, 5)
    assert metadata.segment_of(5) == (second, None)
    with pytest.raises(LedgerMetadataError, match="no segment has entry -1"):
        metadata.segment_of(-1)


def test_ensemble_change_replaces_a_segment_without_entries() -> None:
    metadata = LedgerMetadata((LedgerSegment(("a",)),)).with_ensemble(5, ("b",)).with_ensemble(5, ("c",))
    assert metadata.segments == (LedgerSegment(("a",)), LedgerSegment(("c",), 5))


@pytest.mark.parametrize(
    ("ledger_id", "key"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (12345678, "/ledgers/00/1234/L5678"),
        (2147483646, "/ledgers/21/4748/L3646"),
        (2147483647, "/ledgers/000/0000/0021/4748/L3647"),
    ],
)
def test_ledger_key_is_bookkeepers_path(ledger_id: int, key: str) -> None:
    assert ledger_key(ledger_id) == key
