"""Sends one HTTP request as the bytes that a test writes down, without a library that would mend it."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_S: Final = 60.0


class RawAnswer(NamedTuple):
    """Status, header lines in lower case, and body."""

    status: int
    headers: dict[str, str]
    body: bytes


def send(url: str, line: str, *headers: str, body: bytes = b"", host: str | None = None) -> RawAnswer:
    """Sends `METHOD PATH` with these header lines to the server of `url`; `host` replaces its address in `Host`."""
    address = urlsplit(url).netloc
    name, _, port = address.rpartition(":")
    head = [f"{line} HTTP/1.1", f"Host: {address if host is None else host}", "Connection: close", *headers]
    if body:
        head.append(f"Content-Length: {len(body)}")
    request = "\r\n".join([*head, "", ""]).encode() + body
    with socket.create_connection((name, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(request)
        received = bytearray()
        while part := connection.recv(1 << 16):
            received += part
    top, _, content = bytes(received).partition(b"\r\n\r\n")
    status_line, *lines = top.decode("latin-1").split("\r\n")
    pairs = (text.partition(":") for text in lines)
    return RawAnswer(
        int(status_line.split()[1]), {key.lower(): value.strip() for key, _, value in pairs}, content
    )
