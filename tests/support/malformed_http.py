"""Bytes that are no HTTP request, each with a planted word where a credential may stand."""

from __future__ import annotations

import asyncio

PLANTED = b"planted-" * 3
_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MALFORMED = (
    _HEAD + b"Authorization: Bearer " + PLANTED + b"x" * 10_000 + b"\r\n\r\n",
    _HEAD + b"Authorization " + PLANTED + b"\r\n\r\n",
    _HEAD + PLANTED + b"\x00: Bearer\r\n\r\n",
    _HEAD + b"Authorization: Bearer " + PLANTED + b"\x00\r\n\r\n",
    _HEAD + b"Content-Length: " + PLANTED + b"\r\n\r\n",
    _HEAD + b"Connection: close\r\nExpect: " + PLANTED + b"\r\n\r\n",
    b"GET /?token=" + PLANTED + b"x" * 10_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /?token=" + PLANTED + b" HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /?token=" + PLANTED + b" " + PLANTED + b" HTTP/1.1\r\n\r\n",
    PLANTED + b" / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    PLANTED + b"\r\n\r\n",
)
"""Each is refused, and the connection closed, by every HTTP port."""


async def whole_answer(port: int, data: bytes) -> bytes:
    """Sends the bytes to a port of this machine; returns all that is answered until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
