"""PeerConnection: one connection to the data port of another broker, in Pulsar's protocol as its clients speak it.

Requests are numbered, and several may wait for their answers. Without an answer the request fails: the caller sends it
again over a connection to the broker that owns the topic by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from google.protobuf.message import DecodeError

from broker.peers.peer_settings import role_refused
from foundation.model.errors import ServiceNotReady
from protocol import answers, requests
from protocol.commands import parse_command
from protocol.errors import ProtocolError
from protocol.frame import SIZES
from protocol.pulsar_api_pb2 import BaseCommand, CommandEndTxnOnPartitionResponse, ServerError

CLIENT_VERSION: Final = "Magnetar broker"
"""Name of a broker in the logs and statistics of others."""
FRAME_MAX: Final = 1 << 20
"""Longest frame of an answer; none of them has a message."""

_ROLE_REFUSED: Final = (ServerError.AuthenticationError, ServerError.AuthorizationError)

Proof = Callable[[], tuple[str, str] | None]
"""Returns what proves this broker's role now: the method, and its secret."""


class PeerConnection(asyncio.Protocol):
    """Made by a transport; `connected` is awaited first."""

    def __init__(self, broker: str, proof: Proof) -> None:
        """`broker`: its name, for errors."""
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the broker has accepted this one; fails with ServiceNotReady."""
        self.is_lost = False
        """True once nothing can be sent any more."""
        self._broker = broker
        self._proof = proof
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._last_id = 0

    async def ask(self, encode: Callable[[int], bytes]) -> None:
        """Sends the request that `encode` makes of its number, and returns when the broker has done it.

        Raises ServiceNotReady for a refusal, and without an answer.
        """
        if self._transport is None or self.is_lost:
            raise ServiceNotReady(f"the connection to broker {self._broker} has ended")
        self._last_id += 1
        number = self._last_id
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._transport.write(encode(number))
        try:
            await answer
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """Ends the connection; requests without an answer fail."""
        if self._transport is not None:
            self._transport.close()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Says who this broker is."""
        # uvloop's transport has all methods without being a subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(requests.connect(CLIENT_VERSION, auth=self._auth(), proxy_to=None))

    def connection_lost(self, error: Exception | None) -> None:
        """Fails all that waits."""
        self.is_lost = True
        reason = f": {error}" if error is not None else ""
        lost = ServiceNotReady(f"the connection to broker {self._broker} has ended{reason}")
        for future in (self.connected, *self._waiting.values()):
            if not future.done():
                future.set_exception(lost)

    def data_received(self, data: bytes) -> None:
        """Cuts frames and handles each."""
        self._received += data
        try:
            while len(self._received) >= SIZES.size:
                size, command_size = SIZES.unpack_from(self._received)
                if size > FRAME_MAX or command_size + 4 > size:
                    raise ProtocolError(f"a frame of {size} bytes")
                if len(self._received) < size + 4:
                    return
                command = parse_command(bytes(self._received[SIZES.size : SIZES.size + command_size]))
                del self._received[: size + 4]
                self._handle(command)
        except (ProtocolError, DecodeError):
            # No broker of this protocol: nothing that it says can be believed.
            self.close()

    def _auth(self) -> tuple[str, bytes] | None:
        proof = self._proof()
        return None if proof is None else (proof[0], proof[1].encode())

    def _handle(self, command: BaseCommand) -> None:
        assert self._transport is not None, "frames come over a transport"
        if command.type == BaseCommand.PING:
            self._transport.write(answers.PONG)
        elif command.type == BaseCommand.AUTH_CHALLENGE:
            self._transport.write(requests.auth_response(CLIENT_VERSION, self._auth()))
        elif command.type == BaseCommand.CONNECTED and not self.connected.done():
            self.connected.set_result(None)
        elif command.type == BaseCommand.ERROR and not self.connected.done():
            self.connected.set_exception(
                self._refusal("refuses the connection", command.error.error, command.error.message)
            )
        elif command.type == BaseCommand.END_TXN_ON_PARTITION_RESPONSE:
            self._answered(command.endTxnOnPartitionResponse)
        elif command.type == BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE:
            # Both answers have the same fields, with the same names.
            self._answered(cast("CommandEndTxnOnPartitionResponse", command.endTxnOnSubscriptionResponse))

    def _answered(self, answer: CommandEndTxnOnPartitionResponse) -> None:
        waiting = self._waiting.get(answer.request_id)
        if waiting is None or waiting.done():
            return
        if answer.HasField("error"):
            waiting.set_exception(self._refusal("refuses a command", answer.error, answer.message))
        else:
            waiting.set_result(None)

    def _refusal(self, what: str, error: ServerError.ValueType, message: str) -> ServiceNotReady:
        if error in _ROLE_REFUSED:
            return ServiceNotReady(role_refused(self._broker, message))
        return ServiceNotReady(f"broker {self._broker} {what}: {message}")
