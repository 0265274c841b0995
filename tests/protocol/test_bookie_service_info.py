"""The value of a bookie's available node, written and read."""

from __future__ import annotations

import pytest

from protocol.bookie_service_info import BookieEndpoints, endpoints_of, service_info

RECORDED = bytes.fromhex("32230a06626f6f6b696510d5b6011a093132372e302e302e31220a626f6f6b69652d727063")
"""Of BookKeeper 4.17.3."""
HTTP_SERVER = bytes.fromhex("321f0a0a6874747073657276657210d08c011a07302e302e302e30220468747470")
"""BookKeeper 4.17.2 writes this in front of it with `httpServerEnabled=true` and `httpServerPort=18000`."""


def test_service_info_equals_bookkeepers() -> None:
    assert service_info("127.0.0.1", 23381) == RECORDED


def test_address_is_read_from_the_endpoint_of_clients() -> None:
    assert endpoints_of("an-id", RECORDED) == BookieEndpoints("127.0.0.1:23381", None)
    other = RECORDED.replace(b"bookie-rpc", b"bookie-xyz")
    assert endpoints_of("an-id", other) == BookieEndpoints(None, None)


def test_http_server_is_an_endpoint_beside_it() -> None:
    value = service_info("10.0.0.1", 3181, 8000)
    assert value.startswith(service_info("10.0.0.1", 3181))
    assert endpoints_of("an-id", value) == BookieEndpoints("10.0.0.1:3181", "10.0.0.1:8000")


def test_http_server_at_every_address_is_at_that_of_the_bookie() -> None:
    assert endpoints_of("an-id", HTTP_SERVER + RECORDED) == BookieEndpoints(
        "127.0.0.1:23381", "127.0.0.1:18000"
    )


def test_address_is_the_id_when_the_value_is_empty() -> None:
    assert endpoints_of("host:3181", b"") == BookieEndpoints("host:3181", None)


def test_address_of_other_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="no BookieServiceInfoFormat"):
        endpoints_of("an-id", b"\xff")
