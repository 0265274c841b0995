"""HealthPort: a small HTTP port that a thread of its own answers, so that it can tell of a stuck event loop.

`GET /live` is 200 while the event loop turns, and 503 once it has been held for STUCK_S. A supervisor may then restart the
process. Whether the broker can store messages is another question, which `/admin/v2/brokers/health` answers on the loop.

The thread needs the interpreter's lock. Python code that runs for ever gives it away every 5 ms; a call into C that keeps
it silences this port too, and a supervisor's own time-out then tells the same.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Final, TypeAlias

from broker.net.listener import bind
from foundation.loop.loop_watch import LoopWatch

log = logging.getLogger("magnetar")

STUCK_S: Final = 5.0
"""Time without a turn of the loop from which on the broker counts as stuck. Nothing that it does takes a tenth of it."""
CONNECTIONS_MAX: Final = 16
"""Connections at the same time, each with a thread; a further one is closed at once."""
SILENCE_S: Final = 5.0
"""Time for a connection to send its request."""


HealthAnswer: TypeAlias = tuple[int, dict[str, object]]
"""Status and JSON of an answer."""
_Request: TypeAlias = socket | tuple[bytes, socket]


class HealthPort:
    """The port and its thread."""

    def __init__(self, watch: LoopWatch, stuck_s: float = STUCK_S) -> None:
        """`watch` is asked by the threads of the port."""
        self._watch = watch
        self._stuck_s = stuck_s
        self._server: _Server | None = None

    def open(self, host: str, port: int) -> int:
        """Begins to answer; returns the number of the port, of which 0 asks for any. Raises OSError when it is in use."""
        self._server = _Server(bind(host, port), self._answer)
        threading.Thread(target=self._server.serve_forever, name="health port", daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Closes the port; to be called in a thread, because it waits for the port's own."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, path: str) -> HealthAnswer:
        if path != "/live":
            return 404, {"reason": "only /live is served here"}
        held_s = self._watch.held_s()
        if held_s >= self._stuck_s:
            return 503, {"reason": f"the event loop has not turned for {held_s:.1f} s"}
        return 200, {"status": "alive", "loopLagSeconds": round(max(held_s, self._watch.lag_s), 3)}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A stop must not wait for a silent client.
    block_on_close = False

    def __init__(self, listening: socket, answer: Callable[[str], HealthAnswer]) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.answer = answer
        # The base class has made a socket of its own, for IPv4 alone.
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.socket.listen(CONNECTIONS_MAX)
        self._free = threading.Semaphore(CONNECTIONS_MAX)

    def verify_request(self, request: _Request, client_address: object) -> bool:
        """Returns False for a connection above the limit."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        """Answers one connection; runs in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Stays silent about a peer that leaves or breaks HTTP; the base class would print a traceback."""


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENCE_S
    server: _Server

    def do_GET(self) -> None:
        """Answers `/live`."""
        status, value = self.server.answer(self.path.partition("?")[0])
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for bytes that are no request; its own texts repeat them, a credential too."""
        super().send_error(code)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a supervisor asks every few seconds."""
