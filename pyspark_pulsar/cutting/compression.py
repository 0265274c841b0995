"""Compresses and decompresses payloads with the codecs of Pulsar's clients, all of which pyarrow and zlib contain."""

from __future__ import annotations

import zlib
from functools import cache

import pyarrow as pa

from protocol.pulsar_api_pb2 import CompressionType
from pyspark_pulsar.errors import MalformedEntry, OptionError

_ARROW_CODECS: dict[int, str] = {
    CompressionType.LZ4: "lz4_raw",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}


def unpack(kind: int, packed: memoryview, size: int) -> bytes | pa.Buffer:
    """Decompresses a payload; `kind` is a number of the protocol's enum CompressionType.

    `size` is the uncompressed size that the entry's metadata claims. MalformedEntry for an unknown codec, damaged bytes
    or another size.
    """
    try:
        if kind == CompressionType.ZLIB:
            unpacked = zlib.decompress(packed, bufsize=max(size, 1))
        elif kind in _ARROW_CODECS:
            unpacked = _codec(_ARROW_CODECS[kind]).decompress(pa.py_buffer(packed), size)
        else:
            raise MalformedEntry(f"an entry is compressed with the unknown codec {kind}")
    except (zlib.error, pa.ArrowException, OSError, ValueError) as error:
        raise MalformedEntry(f"an entry cannot be unpacked: {error}") from None
    if len(unpacked) != size:
        raise MalformedEntry(f"an entry unpacks to {len(unpacked)} bytes instead of {size}")
    return unpacked


def pack(kind: int, plain: bytes | pa.Buffer) -> bytes | pa.Buffer:
    """Compresses a payload; returns it unchanged for CompressionType.NONE. KeyError for an unknown codec."""
    if kind == CompressionType.NONE:
        return plain
    if kind == CompressionType.ZLIB:
        return zlib.compress(memoryview(plain))
    return _codec(_ARROW_CODECS[kind]).compress(plain)


def compression_type(name: str) -> int:
    """Returns the number of a codec in the protocol's enum. OptionError for a name that Pulsar does not have."""
    try:
        return CompressionType.Value(name.upper())
    except ValueError:
        names = ", ".join(CompressionType.keys())
        raise OptionError(f"compressionType is {name!r}: one of {names} is expected") from None


@cache
def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)
