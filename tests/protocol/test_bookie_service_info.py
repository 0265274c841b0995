"""The value of a bookie's available node, written and read."""

from __future__ import annotations

import pytest

from protocol.bookie_service_info import address_of, service_info

RECORDED = bytes.fromhex("32230a06626f6f6b696510d5b6011a093132372e302e302e31220a626f6f6b69652d727063")
"""Of BookKeeper 4.17.3."""


def test_service_info_equals_bookkeepers() -> None:
    assert service_info("127.0.0.1", 23381) == RECORDED


def test_address_is_read_from_the_endpoint_of_clients() -> None:
    assert address_of("an-id", RECORDED) == "127.0.0.1:23381"
    assert address_of("an-id", RECORDED.replace(b"bookie-rpc", b"bookie-xyz")) is None


def test_address_is_the_id_when_the_value_is_empty() -> None:
    assert address_of("host:3181", b"") == "host:3181"


def test_address_of_other_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="no BookieServiceInfoFormat"):
        address_of("an-id", b"\xff")
