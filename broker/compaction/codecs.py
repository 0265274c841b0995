"""Compresses and decompresses the payloads of batches with the codecs of Pulsar's clients.

The decompressed size is bounded by the size that the message's metadata claims, so a small payload cannot fill the memory.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam

from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import CompressionType

UNPACKED_BYTES_MAX: Final = 128 << 20
"""Largest batch that is decompressed; clients make batches of 128 KiB."""


def unpack(kind: int, packed: memoryview, size: int) -> bytes:
    """Returns the decompressed payload; `kind` is a number of CompressionType, `size` what the metadata claims.

    ProtocolError for an unknown codec, damaged bytes, another size, or more than `UNPACKED_BYTES_MAX`.
    """
    if kind == CompressionType.NONE:
        return bytes(packed)
    if size > UNPACKED_BYTES_MAX:
        raise ProtocolError(f"a batch claims {size} bytes unpacked; at most {UNPACKED_BYTES_MAX} are allowed")
    plain = bytearray(size)
    try:
        if kind == CompressionType.ZLIB:
            # One byte more than claimed: it tells a larger batch from a right one.
            unpacked = zlib.decompressobj().decompress(packed, size + 1)
            count, plain = len(unpacked), bytearray(unpacked)
        elif kind == CompressionType.LZ4:
            count = cramjam.lz4.decompress_block_into(packed, plain)
        elif kind == CompressionType.ZSTD:
            count = cramjam.zstd.decompress_into(packed, plain)
        elif kind == CompressionType.SNAPPY:
            count = cramjam.snappy.decompress_raw_into(packed, plain)
        else:
            raise ProtocolError(f"a batch is compressed with the unknown codec {kind}")
    except (zlib.error, cramjam.DecompressionError) as error:
        raise ProtocolError(f"a batch cannot be unpacked: {error}") from None
    if count != size:
        raise ProtocolError(f"a batch unpacks to {count} bytes instead of {size}")
    return bytes(plain)


def pack(kind: int, plain: bytes) -> bytes:
    """Returns the compressed payload, in the formats of Pulsar's clients: raw blocks for LZ4 and Snappy.

    KeyError for an unknown codec.
    """
    if kind == CompressionType.NONE:
        return plain
    if kind == CompressionType.ZLIB:
        return zlib.compress(plain)
    if kind == CompressionType.LZ4:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if kind == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(plain))
    if kind == CompressionType.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(plain))
    raise KeyError(kind)
