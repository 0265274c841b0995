"""One connection to a broker with plain blocking sockets: requests in flight, and a buffer that messages stay in.

Frames are cut where they arrived. A MESSAGE is not parsed here: its place in the buffer is noted, and whoever reads
takes buffer and places together and cuts columns from them. All other commands are parsed one by one.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from protocol import answers, requests
from protocol.commands import parse_command
from protocol.frame import FRAME_PADDING_BYTES
from protocol.pulsar_api_pb2 import BaseCommand, ServerError
from pyspark_pulsar.errors import BrokerLost, BrokerRefused

CLIENT_VERSION = "pyspark-pulsar"
BUFFER_BYTES = 1 << 20
SLACK_BYTES = 16
"""Room behind the last byte, so that reading a number's next bytes never leaves the buffer."""
IN_FLIGHT_MAX = 512
"""Requests sent and not answered: few enough that neither side's socket buffer can fill while both write."""

_size_at = struct.Struct(">I").unpack_from
_Command = BaseCommand


class Credentials(NamedTuple):
    method: str
    data: bytes


class Endpoint(NamedTuple):
    """Where to connect. `behind_proxy`: the broker that is meant, where host and port are a proxy's."""

    host: str
    port: int
    tls: bool = False
    behind_proxy: str | None = None


class Security(NamedTuple):
    credentials: Credentials | None = None
    trust_file: str | None = None
    verify_host: bool = True


class Messages(NamedTuple):
    """MESSAGE frames: `buffer` is the taker's, `starts` are where each frame's size field stands."""

    buffer: bytearray
    starts: list[int]


class Connection:
    """Not thread-safe. Every method raises BrokerLost when the connection ends or stays silent for too long."""

    def __init__(self, endpoint: Endpoint, security: Security, timeout_s: float) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self.message_bytes_max = 5 * 1024 * 1024
        self.closed_consumers: set[int] = set()
        """Consumers that the broker has closed since the owner looked: it must look the topic up again."""
        self.closed_producers: set[int] = set()
        self.receipts: list[BaseCommand] = []
        self._answers: dict[int, BaseCommand] = {}
        self._open_requests: set[int] = set()
        self._last_id = 0
        self._buffer = bytearray(BUFFER_BYTES + SLACK_BYTES)
        self._buffer_bytes = BUFFER_BYTES
        self._spare: bytearray | None = None
        self._start = 0
        self._end = 0
        self._messages: list[int] = []
        self.message_bytes = 0
        """Bytes of the whole messages that wait to be taken."""
        self._connected: BaseCommand | None = None
        self._socket = self._open(security)
        try:
            self._shake_hands(security)
        except BaseException:
            self.close()
            raise

    # Opening and closing

    def _open(self, security: Security) -> socket.socket:
        host, port = self.endpoint.host, self.endpoint.port
        try:
            plain = socket.create_connection((host, port), timeout=self.timeout_s)
        except OSError as error:
            raise BrokerLost(f"no connection to {host}:{port}: {error}") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.endpoint.tls:
            return plain
        context = ssl.create_default_context(cafile=security.trust_file)
        context.check_hostname = security.verify_host
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise BrokerLost(f"no TLS connection to {host}:{port}: {error}") from None

    def _shake_hands(self, security: Security) -> None:
        self.send(
            requests.connect(CLIENT_VERSION, auth=security.credentials, proxy_to=self.endpoint.behind_proxy)
        )
        deadline = time.monotonic() + self.timeout_s
        while self._connected is None:
            self.receive(deadline - time.monotonic())
        if self._connected.connected.max_message_size > 0:
            self.message_bytes_max = self._connected.connected.max_message_size

    def close(self) -> None:
        self._socket.close()

    def __str__(self) -> str:
        return f"{self.endpoint.host}:{self.endpoint.port}"

    # Requests

    def next_id(self) -> int:
        """One counter numbers requests, consumers and producers of a connection."""
        self._last_id += 1
        return self._last_id

    def send(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            raise BrokerLost(f"connection to {self} ended while sending: {error}") from None

    def ask(self, request_id: int, frame: bytes, doing: str) -> BaseCommand:
        """The answer; BrokerRefused, which begins with `doing`, if it is an error."""
        return self.ask_all([(request_id, frame, doing)])[0]

    def ask_all(self, wanted: Iterable[tuple[int, bytes, str]]) -> list[BaseCommand]:
        """The answers in the order of the requests. The first error among them is raised, after all have come."""
        answered = self.try_all(wanted)
        for _, error in answered:
            if error is not None:
                raise error
        return [answer for answer, _ in answered]

    def try_all(
        self, wanted: Iterable[tuple[int, bytes, str]]
    ) -> list[tuple[BaseCommand, BrokerRefused | None]]:
        """Like `ask_all`, with each error beside its answer."""
        todo = list(wanted)
        for first in range(0, len(todo), IN_FLIGHT_MAX // 2):
            part = todo[first : first + IN_FLIGHT_MAX // 2]
            self.expect(request_id for request_id, _, _ in part)
            self.send(b"".join(frame for _, frame, _ in part))
            self._receive_until_open(IN_FLIGHT_MAX // 2)
        self._receive_until_open(0)
        return [
            (answer, _refusal(answer, doing))
            for answer, doing in ((self._answers.pop(request_id), doing) for request_id, _, doing in todo)
        ]

    def expect(self, request_ids: Iterable[int]) -> None:
        """Keep the answers to these requests; any other answer is dropped."""
        self._open_requests.update(request_ids)

    def answer(self, request_id: int, doing: str) -> BaseCommand | None:
        """The answer to an expected request, None while there is none; BrokerRefused."""
        answer = self._answers.pop(request_id, None)
        if answer is not None and (error := _refusal(answer, doing)) is not None:
            raise error
        return answer

    def _receive_until_open(self, requests_max: int) -> None:
        deadline = time.monotonic() + self.timeout_s
        while len(self._open_requests) > requests_max:
            self.receive(deadline - time.monotonic())

    # Frames

    def receive(self, timeout_s: float) -> bool:
        """Wait for bytes and cut what is whole. False when nothing came; BrokerLost at once if `timeout_s` <= 0."""
        if timeout_s <= 0:
            raise BrokerLost(f"{self} gave no answer within {self.timeout_s:g} s")
        return self.poll(timeout_s)

    def poll(self, timeout_s: float) -> bool:
        """Like `receive`, and silence is no error."""
        self._make_room()
        try:
            self._socket.settimeout(timeout_s)
            count = self._socket.recv_into(memoryview(self._buffer)[self._end : -SLACK_BYTES])
        except TimeoutError:
            return False
        except OSError as error:
            raise BrokerLost(f"connection to {self} ended: {error}") from None
        if not count:
            raise BrokerLost(f"{self} closed the connection")
        self._end += count
        self._cut()
        return True

    def take_messages(self) -> Messages:
        """All MESSAGE frames that are whole, with the buffer that they are in."""
        taken = Messages(self._buffer, self._messages)
        pending = self._end - self._start
        fresh, self._spare = self._spare, None
        if fresh is None or len(fresh) < max(self._buffer_bytes, pending) + SLACK_BYTES:
            fresh = bytearray(max(self._buffer_bytes, pending) + SLACK_BYTES)
        fresh[:pending] = memoryview(self._buffer)[self._start : self._end]
        self._buffer = fresh
        self._start, self._end = 0, pending
        self._messages, self.message_bytes = [], 0
        return taken

    def give_back(self, messages: Messages) -> None:
        """The taker needs the buffer no more: the one after the next is received into it."""
        self._spare = messages.buffer

    def expect_bytes(self, count: int) -> None:
        """Receive into buffers in which so many bytes of messages can wait."""
        self._buffer_bytes = max(self._buffer_bytes, count)

    def _make_room(self) -> None:
        if not self._messages and self._start == self._end:
            self._start = self._end = 0
        needed = BUFFER_BYTES // 16
        if self._end - self._start >= 4:
            total: int = _size_at(self._buffer, self._start)[0]
            if total > self.message_bytes_max + FRAME_PADDING_BYTES:
                raise BrokerLost(
                    f"{self} sent a frame of {total} bytes; its own limit is {self.message_bytes_max}"
                )
            needed = max(needed, self._start + 4 + total - self._end)
        room = len(self._buffer) - SLACK_BYTES - self._end
        if room >= needed:
            return
        if not self._messages:
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            room = len(self._buffer) - SLACK_BYTES - self._end
        if room < needed:
            self._buffer.extend(bytes(max(needed - room, len(self._buffer) // 2)))

    def _cut(self) -> None:
        buffer, start, end = self._buffer, self._start, self._end
        messages = self._messages
        first = start
        while end - start >= 10:
            stop = start + 4 + _size_at(buffer, start)[0]
            if stop > end:
                break
            if buffer[start + 9] == _Command.MESSAGE and buffer[start + 8] == 0x08:
                messages.append(start)
                self.message_bytes += stop - start
            else:
                self._control(start, stop)
            start = stop
        self._start = start
        if first != start and not messages and start == end:
            self._start = self._end = 0

    def _control(self, start: int, stop: int) -> None:
        size: int = _size_at(self._buffer, start + 4)[0]
        if start + 8 + size > stop:
            raise BrokerLost(f"{self} sent a command of {size} bytes in a frame of {stop - start}")
        try:
            command = parse_command(memoryview(self._buffer)[start + 8 : start + 8 + size])
        except DecodeError as error:
            raise BrokerLost(f"{self} sent a command that cannot be read: {error}") from None
        kind = command.type
        if kind == _Command.PING:
            self.send(answers.PONG)
        elif kind == _Command.CONNECTED:
            self._connected = command
        elif kind in (_Command.SEND_RECEIPT, _Command.SEND_ERROR):
            self.receipts.append(command)
        elif kind == _Command.CLOSE_CONSUMER:
            self.closed_consumers.add(command.close_consumer.consumer_id)
        elif kind == _Command.CLOSE_PRODUCER:
            self.closed_producers.add(command.close_producer.producer_id)
        elif kind == _Command.ERROR and self._connected is None:
            raise BrokerRefused(f"connecting to {self}", *_error_of(command))
        else:
            field = _ANSWER_FIELDS.get(kind)
            if field is not None:
                request_id = getattr(command, field).request_id
                if request_id in self._open_requests:
                    self._open_requests.discard(request_id)
                    self._answers[request_id] = command


_ANSWER_FIELDS = {
    _Command.SUCCESS: "success",
    _Command.ERROR: "error",
    _Command.PRODUCER_SUCCESS: "producer_success",
    _Command.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _Command.LOOKUP_RESPONSE: "lookupTopicResponse",
    _Command.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    _Command.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    _Command.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    _Command.ACK_RESPONSE: "ackResponse",
}


def _error_of(command: BaseCommand) -> tuple[str, str]:
    return ServerError.Name(command.error.error), command.error.message


def _refusal(answer: BaseCommand, doing: str) -> BrokerRefused | None:
    """The error that an answer carries, wherever its kind of answer has it."""
    if answer.type == _Command.ERROR:
        return BrokerRefused(doing, *_error_of(answer))
    if answer.type == _Command.GET_SCHEMA_RESPONSE:
        reply = answer.getSchemaResponse
        if reply.HasField("error_code"):
            return BrokerRefused(doing, ServerError.Name(reply.error_code), reply.error_message)
    elif answer.type == _Command.PARTITIONED_METADATA_RESPONSE:
        partitions = answer.partitionMetadataResponse
        if partitions.HasField("error"):
            return BrokerRefused(doing, ServerError.Name(partitions.error), partitions.message)
    elif answer.type == _Command.LOOKUP_RESPONSE:
        found = answer.lookupTopicResponse
        if found.HasField("error"):
            return BrokerRefused(doing, ServerError.Name(found.error), found.message)
    elif answer.type == _Command.ACK_RESPONSE and answer.ackResponse.HasField("error"):
        refused = answer.ackResponse
        return BrokerRefused(doing, ServerError.Name(refused.error), refused.message)
    return None
