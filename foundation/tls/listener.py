"""TlsListener: a port whose connections begin with a TLS handshake.

asyncio can listen with TLS by itself. It then tells nothing of a connection before its handshake has ended: peers that
stall would count against no limit, failed handshakes would leave no trace, and new certificates would need a new
port. So this listener accepts the connections itself and gives each socket to the loop, which does the TLS.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from foundation.tls.certificates import Certificates
from foundation.tls.contexts import reason_of

HANDSHAKE_S: Final = 10.0
"""Seconds that a handshake may take, as long as in Pulsar's network library."""
ACCEPTS_PER_TURN: Final = 16
"""Connections accepted in one go. Their handshakes come together too, and take about half a millisecond each."""
PAUSE_S: Final = 1.0
"""Pause of accepting when the process has no file descriptor left."""


class Admission(Protocol):
    """Limits of connections, for those whose handshake has not ended."""

    def begin_handshake(self, host: str) -> str | None:
        """Counts a handshake; returns the reason against it when a limit is reached, and then counts nothing."""
        ...

    def end_handshake(self, host: str) -> None:
        """Subtracts a handshake that has ended.

        After a successful one the protocol counts the connection already, so for one turn both do.
        """
        ...


class TlsListener:
    """Accepts the connections of a bound socket from its making to `close`."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        certificates: Certificates,
        admission: Admission,
        warn: Callable[[str], None],
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """`make_protocol` makes the protocol above TLS. `warn` gets a line for each connection that was not made."""
        self.failed = 0
        """Handshakes that failed."""
        self._socket = listening
        self._make_protocol = make_protocol
        self._certificates = certificates
        self._admission = admission
        self._warn = warn
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    @property
    def port(self) -> int:
        """The number of the port."""
        number: int = self._socket.getsockname()[1]
        return number

    def close(self) -> None:
        """Accepts nothing more and ends all handshakes; connections stay."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._begin(accepted, str(address[0]), int(address[1]))

    def _pause(self, error: OSError) -> None:
        """Stops accepting for a while: the socket stays readable, and the loop would ask without end."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise error
        self._warn(f"! no TLS connection can be accepted: {error}")
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _begin(self, accepted: socket.socket, host: str, port: int) -> None:
        reason = self._admission.begin_handshake(host)
        if reason is not None:
            # Without a handshake there is no way to tell the client.
            self._warn(f"- {host}:{port} refused: {reason}")
            accepted.close()
            return
        accepted.setblocking(False)
        # A task per connection, not per message.
        task = self._loop.create_task(self._handshake(accepted, host, port))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, accepted: socket.socket, host: str, port: int) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._certificates.current(),
                ssl_handshake_timeout=self._handshake_s,
            )
        except ConnectionAbortedError:
            self._failed(f"no TLS handshake within {self._handshake_s:g} s", host, port)
        except ssl.SSLError as error:
            self._failed(f"TLS handshake failed: {handshake_reason(error)}", host, port)
        except OSError:
            # A peer that connects and leaves, as a check of a port does: no line in the log.
            self.failed += 1
        finally:
            self._admission.end_handshake(host)

    def _failed(self, reason: str, host: str, port: int) -> None:
        self.failed += 1
        self._warn(f"! {host}:{port} closed: {reason}")


def handshake_reason(error: ssl.SSLError) -> str:
    """Returns the reason of a failed handshake, in words for the mistakes that clients make."""
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"):
        return "the client does not speak TLS; this port needs pulsar+ssl:// or https://"
    # Without this text an expired certificate and one of another authority have the same code.
    verified = getattr(error, "verify_message", "")
    return f"{reason_of(error)}: {verified}" if verified else reason_of(error)


def common_name(transport: asyncio.BaseTransport | None) -> str | None:
    """Returns the CN in the certificate of the peer, which Pulsar's TLS authentication takes as the role.

    None without TLS, without a certificate that a trusted one vouches for, and without a CN. Of several the most specific
    one counts, which stands last.
    """
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # Empty for a peer without a certificate, and for one whose certificate was not checked.
    shown = None if tls is None else tls.getpeercert()
    # From the end, as Java writes a subject: Pulsar takes the first CN of that text.
    for part in reversed((shown or {}).get("subject", ())):
        for field, value in part:
            if field == "commonName" and value:
                return str(value)
    return None
