"""Requests of the command line that a broker sends on to the owner of a topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from magnetar.clients.admin_client import REDIRECTS_MAX, AdminAddress, send
from magnetar.clients.client import CommandError

Asked = tuple[str, str, bytes, str]


@contextmanager
def server(location: Callable[[str], str] | None) -> Iterator[tuple[str, list[Asked]]]:
    """A broker that answers 307 with the location for a path, or 200; its URL, and what it was asked."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, body, self.headers["Authorization"] or ""))
            self.send_response(200 if location is None else 307)
            if location is not None:
                self.send_header("Location", location(self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{found.server_port}", asked
    finally:
        found.shutdown()
        found.server_close()


def address(url: str) -> AdminAddress:
    return AdminAddress(url, "org.apache.pulsar.client.impl.auth.AuthenticationToken", "token:secret")


def test_request_goes_to_the_owner_whole() -> None:
    with (
        server(None) as (owner, asked),
        server(lambda path: f"{owner}{path}?authoritative=true") as (other, _),
    ):
        send(address(other), "PUT", "/admin/v2/persistent/public/default/a%2Fb", b"7")
    path = "/admin/v2/persistent/public/default/a%2Fb?authoritative=true"
    assert asked == [("PUT", path, b"7", "Bearer secret")]


def test_redirects_without_end_are_an_error() -> None:
    with server(lambda path: f"{loop[0]}{path}") as (url, asked):
        loop = [url]
        with pytest.raises(CommandError, match="without end"):
            send(address(url), "PUT", "/x")
    assert len(asked) == REDIRECTS_MAX + 1


@pytest.mark.parametrize("location", ["", "/relative", "ftp://host/x"])
def test_redirect_to_no_url_is_an_error(location: str) -> None:
    with server(lambda _: location) as (url, _), pytest.raises(CommandError, match="which is no URL"):
        send(address(url), "PUT", "/x")
