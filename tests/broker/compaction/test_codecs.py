"""Codecs of batches: every kind there and back, damaged payloads, and payloads that unpack to too much."""

from __future__ import annotations

import zlib

import cramjam
import pytest

from broker.compaction.codecs import UNPACKED_BYTES_MAX, pack, unpack
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import CompressionType

KINDS = tuple(CompressionType.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plain", [b"", b"x", b"abc" * 10_000])
def test_payload_is_the_same_after_packing_and_unpacking(kind: int, plain: bytes) -> None:
    assert unpack(kind, memoryview(pack(kind, plain)), len(plain)) == plain


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != CompressionType.NONE])
@pytest.mark.parametrize("size", [0, 99, 101])
def test_payload_of_another_size_than_claimed_is_refused(kind: int, size: int) -> None:
    with pytest.raises(ProtocolError):
        unpack(kind, memoryview(pack(kind, b"v" * 100)), size)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != CompressionType.NONE])
def test_damaged_payload_is_refused(kind: int) -> None:
    with pytest.raises(ProtocolError):
        unpack(kind, memoryview(b"\xff" * 40), 100)


def test_claim_above_the_limit_is_refused_without_memory_for_it() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        unpack(CompressionType.ZSTD, memoryview(b""), UNPACKED_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (CompressionType.ZLIB, zlib.compress(bytes(1 << 24))),
        (CompressionType.ZSTD, bytes(cramjam.zstd.compress(bytes(1 << 24)))),
    ],
)
def test_small_payload_that_unpacks_to_much_is_refused(kind: int, packed: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(kind, memoryview(packed), 1000)


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown codec 9"):
        unpack(9, memoryview(b"x"), 1)
