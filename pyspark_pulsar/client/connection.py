"""One blocking connection to a broker: requests in flight, and a buffer in which received messages stay.

Used by the driver and by Spark's Python workers; each process opens its own. There is no thread: bytes move only while
a caller is inside `send`, `receive` or `poll`, and those calls also answer the broker's PING.

A MESSAGE frame is not parsed here. Its start in the buffer is noted, and `take_messages` gives buffer and starts to
`cutting/`, which reads thousands of messages column by column. All other commands are parsed one by one.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Concatenate, NamedTuple, ParamSpec

from google.protobuf.message import DecodeError

from foundation.tls.errors import TlsError
from protocol import answers, requests
from protocol.commands import parse_command
from protocol.frame import FRAME_PADDING_BYTES
from protocol.pulsar_api_pb2 import BaseCommand, ServerError
from pyspark_pulsar.client.security import Security
from pyspark_pulsar.client.tls_refusals import closed_early, refusal
from pyspark_pulsar.cutting.messages import SLACK_BYTES, Messages
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, TlsRefused

CLIENT_VERSION = "pyspark-pulsar"
"""Name of this client in brokers' logs and statistics."""
_BUFFER_BYTES = 1 << 20
_IN_FLIGHT_MAX = 512
"""Requests sent and not answered.

Sending blocks, and nothing is received meanwhile. With more requests the socket buffers of both sides could fill up
while both write, and neither would read again.
"""

Fields = ParamSpec("Fields")
_size_at = struct.Struct(">I").unpack_from
_Command = BaseCommand


class Endpoint(NamedTuple):
    """Address of a broker or of a proxy in front of it."""

    host: str
    """Name or address, without brackets."""
    port: int
    """TCP port."""
    tls: bool = False
    """True for `pulsar+ssl`."""
    behind_proxy: str | None = None
    """`host:port` of the broker that the proxy is to connect to; None without a proxy."""


class Request(NamedTuple):
    """A command that the broker answers, ready to send."""

    request_id: int
    """An id of the connection that sends the request."""
    frame: bytes
    """The whole frame, sizes included."""
    doing: str
    """Purpose as a participle ("looking up TOPIC"); an error text for a refusal begins with it."""


class BrokerConnection:
    """A connection that has completed CONNECT. Not thread-safe.

    Every method that sends or receives raises BrokerLost when the connection ends, or when an answer takes longer than
    `timeout_s`. A lost connection stays lost; the caller closes it and opens another.
    """

    def __init__(self, endpoint: Endpoint, security: Security, timeout_s: float) -> None:
        """Connects and waits for CONNECTED. BrokerLost; BrokerRefused where authentication fails; TlsRefused."""
        self.endpoint = endpoint
        """The address that this connection was opened to."""
        self.timeout_s = timeout_s
        """Limit for connecting, for sending and for each group of answers."""
        self.message_bytes_max = 5 * 1024 * 1024
        """The broker's limit for an entry, from its CONNECTED; Pulsar's default until then."""
        self.closed_consumers: set[int] = set()
        """Ids of consumers that the broker closed (CLOSE_CONSUMER), for example because the topic moves.

        The opener of the consumers empties the set and looks the topics up again.
        """
        self.closed_producers: set[int] = set()
        """Like `closed_consumers`, for CLOSE_PRODUCER."""
        self.receipts: list[BaseCommand] = []
        """SEND_RECEIPT and SEND_ERROR in order of arrival; the publisher empties the list."""
        self._answers: dict[int, BaseCommand] = {}
        self._open_requests: set[int] = set()
        self._last_id = 0
        self._buffer = bytearray(_BUFFER_BYTES + SLACK_BYTES)
        self._buffer_bytes = _BUFFER_BYTES
        self._spare: bytearray | None = None
        # Bytes from `_start` to `_end` are received and not cut; the frames before `_start` are in `_messages`.
        self._start = 0
        self._end = 0
        self._messages: list[int] = []
        self.message_bytes = 0
        """Bytes of the whole MESSAGE frames that `take_messages` would return now."""
        self._connected: BaseCommand | None = None
        self._security = security
        self._socket = self._open(security)
        try:
            self._handshake(security)
        # Also on KeyboardInterrupt: without an object nothing else could close the socket.
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
        # Otherwise the kernel holds a FLOW back until the data before it is acknowledged, and the broker waits for
        # permits.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.endpoint.tls:
            return plain
        try:
            return security.context().wrap_socket(plain, server_hostname=host)
        except (OSError, TlsError) as error:
            plain.close()
            self._raise_if_refused(error)
            raise BrokerLost(f"no TLS connection to {host}:{port}: {error}") from None

    def _handshake(self, security: Security) -> None:
        self.send(
            requests.connect(CLIENT_VERSION, auth=security.proof(), proxy_to=self.endpoint.behind_proxy)
        )
        deadline = time.monotonic() + self.timeout_s
        while self._connected is None:
            self.receive(deadline - time.monotonic())
        if self._connected.connected.max_message_size > 0:
            self.message_bytes_max = self._connected.connected.max_message_size

    def _raise_if_refused(self, error: Exception) -> None:
        """Raises TlsRefused for an error of TLS that another attempt would meet again."""
        sentence = refusal(error, str(self))
        if sentence is not None:
            raise TlsRefused(sentence) from None

    def close(self) -> None:
        """Closes the socket; the broker then closes the consumers and producers. Harmless when repeated."""
        self._socket.close()

    def __str__(self) -> str:
        return f"{self.endpoint.host}:{self.endpoint.port}"

    # Requests

    def next_id(self) -> int:
        """Returns an unused id; one counter numbers requests, consumers and producers alike."""
        self._last_id += 1
        return self._last_id

    def request(
        self,
        doing: str,
        encode: Callable[Concatenate[int, Fields], bytes],
        *fields: Fields.args,
        **named: Fields.kwargs,
    ) -> Request:
        """Returns the command that `encode` makes of the next id and these fields, ready to send."""
        request_id = self.next_id()
        return Request(request_id, encode(request_id, *fields, **named), doing)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Sends all of `data`; blocks while the broker reads slowly."""
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            raise BrokerLost(f"connection to {self} ended while sending: {error}") from None

    def ask(self, request: Request) -> BaseCommand:
        """Sends a request and returns its answer. BrokerRefused where the answer is an error."""
        return self.ask_all([request])[0]

    def ask_all(self, wanted: Iterable[Request]) -> list[BaseCommand]:
        """Sends requests together and returns the answers in the order of the requests.

        BrokerRefused: the first error among the answers, raised after all answers have come, so that none of them is
        left over for a later caller.
        """
        answered = self.try_all(wanted)
        for _, error in answered:
            if error is not None:
                raise error
        return [answer for answer, _ in answered]

    def try_all(self, wanted: Iterable[Request]) -> list[tuple[BaseCommand, BrokerRefused | None]]:
        """Asks like `ask_all`, with each error beside its answer instead of raised."""
        todo = list(wanted)
        # Half of the limit at a time: the next requests are sent while the broker works on those before.
        for first in range(0, len(todo), _IN_FLIGHT_MAX // 2):
            part = todo[first : first + _IN_FLIGHT_MAX // 2]
            self.expect(request.request_id for request in part)
            self.send(b"".join(request.frame for request in part))
            self._receive_until_open(_IN_FLIGHT_MAX // 2)
        self._receive_until_open(0)
        answers_of = ((self._answers.pop(request.request_id), request.doing) for request in todo)
        return [(answer, _refusal(answer, doing)) for answer, doing in answers_of]

    def expect(self, request_ids: Iterable[int]) -> None:
        """Keeps the answers to these requests for `answer`; all other answers are dropped."""
        self._open_requests.update(request_ids)

    def answer(self, request_id: int, doing: str) -> BaseCommand | None:
        """Removes and returns the answer to an expected request; None before it has come. BrokerRefused."""
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
        """Waits for bytes and cuts whole frames. False after silence; BrokerLost at once if `timeout_s` <= 0."""
        if timeout_s <= 0:
            raise BrokerLost(f"{self} gave no answer within {self.timeout_s:g} s")
        return self.poll(timeout_s)

    def poll(self, timeout_s: float) -> bool:
        """Receives once and cuts whole frames. Returns False after `timeout_s` seconds of silence."""
        self._free_space()
        try:
            self._socket.settimeout(timeout_s)
            count = self._socket.recv_into(memoryview(self._buffer)[self._end : -SLACK_BYTES])
        except TimeoutError:
            return False
        except OSError as error:
            # With TLS 1.3 a refusal of the client's certificate arrives here, after the client's part of the handshake.
            self._raise_if_refused(error)
            raise BrokerLost(f"connection to {self} ended: {error}") from None
        if not count:
            if self._connected is None:
                guess = closed_early(self._security, tls=self.endpoint.tls)
                raise BrokerLost(f"{self} closed the connection before it answered; {guess}")
            raise BrokerLost(f"{self} closed the connection")
        self._end += count
        self._cut()
        return True

    def take_messages(self) -> Messages:
        """Removes and returns all whole MESSAGE frames, with the buffer that holds them.

        Receiving continues in another buffer, so the caller may read the taken one at leisure. Only the bytes of an
        unfinished frame are copied.
        """
        taken = Messages(self._buffer, self._messages)
        pending = self._end - self._start
        # Two buffers alternate: a fresh one per call would be zeroed by the allocator each time.
        fresh, self._spare = self._spare, None
        if fresh is None or len(fresh) < max(self._buffer_bytes, pending) + SLACK_BYTES:
            fresh = bytearray(max(self._buffer_bytes, pending) + SLACK_BYTES)
        fresh[:pending] = memoryview(self._buffer)[self._start : self._end]
        self._buffer = fresh
        self._start, self._end = 0, pending
        self._messages, self.message_bytes = [], 0
        return taken

    def reuse_buffer(self, messages: Messages) -> None:
        """Accepts a taken buffer for receiving again; the caller must hold no view or array of it."""
        self._spare = messages.buffer

    def expect_bytes(self, count: int) -> None:
        """Makes later buffers large enough for `count` bytes of waiting messages."""
        self._buffer_bytes = max(self._buffer_bytes, count)

    def _free_space(self) -> None:
        """Makes the buffer's free end large enough for the rest of the unfinished frame, and at least 64 KiB."""
        if not self._messages and self._start == self._end:
            self._start = self._end = 0
        needed = _BUFFER_BYTES // 16
        if self._end - self._start >= 4:
            total: int = _size_at(self._buffer, self._start)[0]
            if total > self.message_bytes_max + FRAME_PADDING_BYTES:
                raise BrokerLost(
                    f"{self} sent a frame of {total} bytes; its own limit is {self.message_bytes_max}"
                )
            needed = max(needed, self._start + 4 + total - self._end)
        free = len(self._buffer) - SLACK_BYTES - self._end
        if free >= needed:
            return
        # Moving bytes would change the starts of noted messages, so it is done only while there are none.
        if not self._messages:
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            free = len(self._buffer) - SLACK_BYTES - self._end
        if free < needed:
            self._buffer.extend(bytes(max(needed - free, len(self._buffer) // 2)))

    def _cut(self) -> None:
        buffer, start, end = self._buffer, self._start, self._end
        messages = self._messages
        first = start
        # Frame: uint32 total size, uint32 command size, command, and for a MESSAGE the entry. No frame has fewer than
        # 10 bytes, because the command begins with the tag (0x08) and the number of its type.
        while end - start >= 10:
            stop = start + 4 + _size_at(buffer, start)[0]
            if stop > end:
                break
            # Protobuf's serializers write fields by number, so the type stands first in every broker's commands.
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
        elif kind == _Command.AUTH_CHALLENGE:
            # The credentials of CONNECT have expired, or the broker looks again; without an answer it closes.
            self.send(requests.auth_response(CLIENT_VERSION, self._security.proof()))
        elif kind == _Command.CONNECTED:
            self._connected = command
        elif kind in (_Command.SEND_RECEIPT, _Command.SEND_ERROR):
            self.receipts.append(command)
        elif kind == _Command.CLOSE_CONSUMER:
            self.closed_consumers.add(command.close_consumer.consumer_id)
        elif kind == _Command.CLOSE_PRODUCER:
            self.closed_producers.add(command.close_producer.producer_id)
        elif self._connected is None and (refused := _refusal(command, f"connecting to {self}")) is not None:
            raise refused
        else:
            field = _ANSWER_FIELDS.get(kind)
            if field is not None:
                request_id = getattr(command, field).request_id
                if request_id in self._open_requests:
                    self._open_requests.discard(request_id)
                    self._answers[request_id] = command


# The field of BaseCommand that holds the answer's request id, by type of command.
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


# Its fields for an error: a code, and a text. Answers of other types have none.
_ERROR_FIELDS = {
    **dict.fromkeys(
        (
            _Command.ERROR,
            _Command.PARTITIONED_METADATA_RESPONSE,
            _Command.LOOKUP_RESPONSE,
            _Command.ACK_RESPONSE,
        ),
        ("error", "message"),
    ),
    _Command.GET_SCHEMA_RESPONSE: ("error_code", "error_message"),
}


def _refusal(answer: BaseCommand, doing: str) -> BrokerRefused | None:
    """Returns the error of an answer; None for one without."""
    fields = _ERROR_FIELDS.get(answer.type)
    if fields is None:
        return None
    reply = getattr(answer, _ANSWER_FIELDS[answer.type])
    if not reply.HasField(fields[0]):
        return None
    code, message = (getattr(reply, field) for field in fields)
    return BrokerRefused(doing, ServerError.Name(code), message)
