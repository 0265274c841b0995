"""The stored form of a cursor within limits: the lowest acknowledged positions, as many as fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.managed_ledger_info import CursorInfo


class StoredInfo(NamedTuple):
    """An encoded cursor info."""

    value: bytes
    """The stored bytes."""
    left_out: int
    """Acknowledged entries that did not fit."""
    batches_left_out: int
    """Batches acknowledged in part that did not fit."""


class InfoLimits(NamedTuple):
    """The limits of one stored cursor."""

    ranges: int
    """Acknowledged ranges after the mark-delete position."""
    batches: int
    """Batches acknowledged in part."""
    value_bytes: int
    """Bytes of the value."""


def encode_within(
    acks: Acks, texts: Mapping[str, str], limits: InfoLimits, encode: Callable[[CursorInfo], bytes]
) -> StoredInfo:
    """Encodes as many acknowledgements as the limits allow, the lowest positions first."""
    info = acks.info(limits.ranges, limits.batches)
    info.cursor_properties = texts
    value, bytes_max = encode(info), limits.value_bytes
    while len(value) > bytes_max and (info.acked or info.batches):
        # A tenth less than the share that would fit, because a part may be packed worse than the whole.
        share = bytes_max / len(value) * 0.9
        kept_batches = int(len(info.batches) * share)
        info.batches_left_out += len(info.batches) - kept_batches
        info.batches = info.batches[:kept_batches]
        kept = int(len(info.acked) * share)
        info.left_out += sum([bits.bit_count() for _, _, bits in info.acked[kept:]])
        info.acked = info.acked[:kept]
        value = encode(info)
    return StoredInfo(value, info.left_out, info.batches_left_out)
