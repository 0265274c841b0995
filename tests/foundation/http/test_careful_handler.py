"""fault_of_peer: what a client learns of its own bytes. The servers that use the handler send real ones in their tests."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, BadStatusLine, LineTooLong

from foundation.http.careful_handler import fault_of_peer

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
