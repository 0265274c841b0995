"""A relay between clients and one server, whose connections a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.support.ports import free_port


class Relay:
    """Listens on a free port of loopback and passes bytes on to `host:port`."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._is_cut = False
        self._is_mute = False
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, and each new one at once."""
        with self._lock:
            self._is_cut = True
            for connection in self._open:
                _end(connection)
            self._open.clear()

    def mute(self) -> None:
        """Passes requests on and no answers, until `mend`."""
        self._is_mute = True

    def mend(self) -> None:
        """Takes connections and passes answers again."""
        with self._lock:
            self._is_cut = self._is_mute = False

    def close(self) -> None:
        """Ends all connections for good."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._is_cut:
                        client.close()
                        continue
                    server = socket.create_connection(self._target)
                    for one in (client, server):
                        # The next of several small answers would wait 40 ms for the acknowledgement of the first.
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other, one is server), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                if not (answers and self._is_mute):
                    other.sendall(data)
        _end(one)
        _end(other)


def _end(connection: socket.socket) -> None:
    """Ends both directions; the thread that reads sees the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
