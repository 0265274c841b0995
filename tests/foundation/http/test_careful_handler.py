"""Texts about a client's own bytes, and requests of Pulsar's proxy. The servers that use the handler send real ones."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, BadStatusLine, LineTooLong

from foundation.http.careful_handler import fault_of_peer, with_one_user_agent

SECRET = "Bearer planted"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LineTooLong(SECRET, 8190), "longer than 8190 bytes"),
        (BadStatusLine(SECRET), "BadStatusLine: the request is not valid HTTP"),
        (BadHttpMessage(SECRET), "BadHttpMessage: the request is not valid HTTP"),
        (web.RequestPayloadError(SECRET), "RequestPayloadError: the request ended early"),
        (ConnectionResetError(SECRET), "ConnectionResetError: the request ended early"),
    ],
)
def test_fault_of_a_peer_is_described_without_its_bytes(error: Exception, words: str) -> None:
    told = fault_of_peer(error)
    assert words in told
    assert "planted" not in told


FIRST, JETTY, CLIENT = b"GET /x HTTP/1.1", b"\r\nUser-Agent: Jetty/9.4.58", b"\r\nUser-Agent: Pulsar-Java"
REST = b"\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("received", "read"),
    [
        (FIRST + JETTY + CLIENT + REST, FIRST + CLIENT + REST),
        (FIRST + JETTY + b"\r\nVia: vm" + CLIENT + REST, FIRST + b"\r\nVia: vm" + CLIENT + REST),
        (FIRST + JETTY + REST, FIRST + JETTY + REST),
        (FIRST + CLIENT + CLIENT + REST, FIRST + CLIENT + CLIENT + REST),
        (FIRST + JETTY + REST + CLIENT + CLIENT, FIRST + JETTY + REST + CLIENT + CLIENT),
    ],
    ids=["adjacent", "apart", "Jetty alone", "another's twice", "in a body"],
)
def test_jettys_user_agent_is_left_out_beside_that_of_its_client(received: bytes, read: bytes) -> None:
    assert with_one_user_agent(received) == read
