"""BookKeeper's v2 frames: golden bytes, both directions, and malformed packets."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import bookie_frame as wire

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
ENTRY = bytes.fromhex(
    "0000000000000007 0000000000000000 ffffffffffffffff 0000000000000005 9e3e717b 68656c6c6f"
)
RECORD = len(ENTRY).to_bytes(4, "big") + ENTRY
ADD = "00000041 02010000" + KEY.hex() + ENTRY.hex()


def packet(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize(
    ("frame", "golden"),
    [
        (wire.encode_add_request(ENTRY, KEY), ADD),
        (
            wire.encode_add_response(2, 0, 7, 0),
            "00000018 02010000 00000000 0000000000000007 0000000000000000",
        ),
        (wire.encode_read_request(7, 0), "00000014 02020000 0000000000000007 0000000000000000"),
        (
            wire.encode_read_response(2, 0, 7, 0, ENTRY),
            "00000041 02020000 00000000 0000000000000007 0000000000000000" + ENTRY.hex(),
        ),
        (
            wire.encode_read_response(2, 2, 7, 9),
            "00000018 02020000 00000002 0000000000000007 0000000000000009",
        ),
        (
            wire.encode_fence_request(7, KEY),
            "00000028 02020001 0000000000000007 ffffffffffffffff" + KEY.hex(),
        ),
        (
            wire.encode_batch_read_request(7, 0, 42, 100, 5 << 20),
            "00000028 02070000 0000000000000007 0000000000000000 000000000000002a 00000064 0000000000500000",
        ),
        (
            wire.encode_batch_read_response(2, 0, 7, 0, 42, [ENTRY]),
            "0000004d 02070000 00000000 0000000000000007 0000000000000000 000000000000002a 00000029"
            + ENTRY.hex(),
        ),
        (
            wire.encode_auth_response(2, "AuthDisabledPlugin", b""),
            "0000001a 02030000 0a12 4175746844697361626c6564506c7567696e 1200",
        ),
    ],
)
def test_encoded_frames_equal_golden_bytes(frame: bytes, golden: str) -> None:
    assert frame == bytes.fromhex(golden)


def test_requests_decode_to_the_encoded_values() -> None:
    assert wire.decode_request(packet(bytes.fromhex(ADD))) == wire.AddRequest(2, 0, KEY, 7, 0, RECORD)
    assert wire.decode_request(packet(wire.encode_add_request(ENTRY, KEY, 6)))[1] == 6
    assert wire.decode_request(packet(wire.encode_read_request(7, -1))) == wire.ReadRequest(2, 0, 7, -1, b"")
    assert wire.decode_request(packet(wire.encode_fence_request(7, KEY, 3, 5))) == wire.ReadRequest(
        2, 5, 7, 3, KEY
    )
    assert wire.decode_request(packet(wire.encode_batch_read_request(7, 1, 42, 3, -1))) == (
        wire.BatchReadRequest(2, 0, 7, 1, 42, 3, -1, b"")
    )
    assert wire.decode_request(packet(wire.encode_auth_request("p" * 300, b"x"))) == wire.AuthRequest(
        2, "p" * 300, b"x"
    )


def test_responses_decode_to_the_encoded_values() -> None:
    decode = wire.decode_response
    assert decode(packet(wire.encode_add_response(2, 104, 7, 3))) == wire.AddResponse(104, 7, 3)
    assert decode(packet(wire.encode_read_response(2, 0, 7, -1, ENTRY))) == wire.ReadResponse(0, 7, -1, ENTRY)
    many = [ENTRY, ENTRY + b"!", ENTRY]
    assert decode(packet(wire.encode_batch_read_response(2, 0, 7, 0, 5, many))) == wire.BatchReadResponse(
        0, 7, 0, 5, many
    )
    assert decode(packet(wire.encode_batch_read_response(2, 2, 7, 0, 5))) == wire.BatchReadResponse(
        2, 7, 0, 5, []
    )
    assert decode(packet(wire.encode_auth_response(2, "plugin", b"yes"))) == wire.AuthResponse(
        "plugin", b"yes"
    )


def test_decode_request_accepts_a_memoryview() -> None:
    request = wire.decode_request(memoryview(packet(bytes.fromhex(ADD))))
    assert isinstance(request, wire.AddRequest)
    assert type(request.record) is bytes
    assert request.record == RECORD


def test_read_ignores_trailing_bytes_and_unknown_flags() -> None:
    frame = packet(wire.encode_read_request(7, 0)) + b"tail"
    assert wire.decode_request(frame) == wire.ReadRequest(2, 0, 7, 0, b"")
    flags = frame[:2] + b"\x00\x08" + frame[4:]
    assert wire.decode_request(flags) == wire.ReadRequest(2, 8, 7, 0, b"")


def test_short_entry_decodes_to_a_short_add_request() -> None:
    for size in (16, 20, 23):
        request = wire.decode_request(packet(wire.encode_add_request(ENTRY[:size], KEY)))
        assert request == wire.ShortAddRequest(2, 7, 0)
    assert isinstance(wire.decode_request(packet(wire.encode_add_request(ENTRY[:24], KEY))), wire.AddRequest)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "0201",
        "00010000" + KEY.hex() + ENTRY.hex(),
        "02000000",
        "02040000",
        "02630000" + "00" * 16,
        "02010000850bf1071c5e3d8c",
        "02010000" + KEY.hex() + "00" * 15,
        "02020000" + "00" * 15,
        "02020001" + "00" * 16,
        "02070001" + "00" * 36,
        "02030000",
        "02030000" + "0a0a5465",
        "02030000" + "ff" * 12,
        "0a06080310011805a206050897281000",
    ],
)
def test_decode_request_refuses_malformed_packets(bad: str) -> None:
    with pytest.raises(wire.FrameError):
        wire.decode_request(bytes.fromhex(bad))


@given(st.binary(max_size=120))
def test_random_packets_decode_or_raise_frame_error(data: bytes) -> None:
    for decode in (wire.decode_request, wire.decode_response):
        with contextlib.suppress(wire.FrameError):
            decode(data)


@given(st.integers(1, 7), st.binary(max_size=60))
def test_nearly_right_packets_decode_or_raise_frame_error(opcode: int, rest: bytes) -> None:
    data = struct.pack(">BBH", 2, opcode, len(rest) % 8) + rest
    for decode in (wire.decode_request, wire.decode_response):
        with contextlib.suppress(wire.FrameError):
            decode(data)
