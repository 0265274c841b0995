"""ServerCnx: one client connection, from bytes to commands and back.

Frames are cut as they arrive; SEND goes straight to its producer, every other command to its handler. When it is read
and how answers leave stands in `CnxFlow`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import cast

from google.protobuf.message import DecodeError

from broker.model.errors import BrokerError, ChecksumMismatch, NotAllowed
from broker.net.cnx_flow import UNHANDLED_FRAMES, UNSENT_ANSWERS, CnxFlow
from broker.net.command_table import ALLOWED_BEFORE_CONNECT, HANDLERS
from broker.net.net_ground import NetGround
from broker.net.ports import ConsumerOnConnection, ProducerOnConnection
from broker.net.text_check import WITHOUT_TEXT, refuse_broken_text
from broker.net.topic_list_watcher import TopicListWatcher
from broker.service.producer import Producer
from protocol import answers
from protocol.commands import parse_command, parse_send
from protocol.errors import ProtocolError
from protocol.frame import FRAME_PADDING_BYTES, checksum_matches
from protocol.pulsar_api_pb2 import BaseCommand, CommandSend
from protocol.receive_buffer import ReceiveBuffer
from protocol.receive_buffer_sizer import ReceiveBufferSizer

log = logging.getLogger("magnetar.net")

_SEND_PREFIX = b"\x08\x06\x32"
"""How a SEND begins when its type comes first, as every client writes it; then one byte of length."""

CLOSED_PRODUCERS_MAX = 1000
"""Producers closed by the broker that a connection remembers, so that ids that never come back do not pile up."""

FRAMES_PER_TURN_MAX = 2000
"""A megabyte of the smallest commands is 75,000 frames: the other connections get their turn in between."""


class ServerCnx(CnxFlow):
    def __init__(self, ground: NetGround) -> None:
        super().__init__(ground)
        settings = ground.settings
        self.protocol_version = 0
        self.client_version = ""
        self.accepts_entry_metadata = False
        self.connected = False
        """CONNECT was answered."""
        self.address = ""
        self.producers: dict[int, ProducerOnConnection] = {}
        self.closed_producers: dict[int, None] = {}
        """Closed by the broker: SENDs that were on their way are dropped in silence."""
        self.consumers: dict[int, ConsumerOnConnection] = {}
        self.watchers: dict[int, TopicListWatcher] = {}
        self._inbox = ReceiveBuffer(
            ReceiveBufferSizer(
                settings.receive_buffer_min, settings.receive_buffer_initial, settings.receive_buffer_max
            ),
            frame_bytes_max=settings.message_bytes_max + FRAME_PADDING_BYTES,
            shared=not settings.copy_entries,
        )
        self._copy = settings.copy_entries
        self._pinged = False
        self._unsent_before = 0
        """Bytes in the transport when keep-alive looked last."""
        self._timer: object = None
        self._probe: asyncio.Future[None] | None = None
        """Somebody waits for any sign of life."""
        self._gone = asyncio.Event()
        """Its producers and consumers are off their topics."""

    # The connection's life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so.
        transport = self._transport
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        ground = self.ground
        ground.counters.created += 1
        limit = ground.settings.connections_max
        if limit and len(ground.connections) >= limit:
            ground.counters.refused += 1
            log.warning("- %s refused: brokerMaxConnections=%d are open", self.address, limit)
            transport.abort()
            return
        ground.connections.add(self)
        transport.set_write_buffer_limits(
            high=ground.settings.write_buffer_high_bytes, low=ground.settings.write_buffer_low_bytes
        )
        if ground.settings.keep_alive_s > 0:
            self._timer = ground.call_later(ground.settings.keep_alive_s, self._keep_alive)

    def connection_lost(self, error: Exception | None) -> None:
        ground = self.ground
        ground.counters.closed += 1
        ground.connections.discard(self)
        ground.publish_buffer.forget(self)
        self._transport = None
        self.out.clear()
        cancel = getattr(self._timer, "cancel", None)
        if cancel is not None:
            cancel()
        for watcher in self.watchers.values():
            watcher.stop()
        consumers, self.consumers = self.consumers, {}
        for port in consumers.values():
            if port.subscription is not None and port.consumer is not None:
                port.subscription.remove_consumer(port.consumer)
        producers, self.producers = self.producers, {}
        left = [port.producer for port in producers.values() if port.producer is not None]
        if left:
            ground.spawn(_leave_topics(left, self._gone), f"producers of {self.address} leave")
        else:
            self._gone.set()
        ground.publish_buffer.give_back(self._counted_bytes)
        self._wake_waiting()
        if self.connected:
            log.info("- %s %s", self.address, self.client_version)

    async def still_there(self) -> bool:
        """Another client wants a place that this one holds: ask for a sign of life.

        False: there was none in time, the connection is closed, and its places are free.
        """
        timeout_s = self.ground.settings.liveness_timeout_s
        if self._transport is not None:
            if timeout_s <= 0:
                return True
            if self._probe is None:
                self._probe = asyncio.get_running_loop().create_future()
                self.send(answers.PING)
            done, _ = await asyncio.wait((self._probe,), timeout=timeout_s)
            if done:
                return True
            self.close("another client wants its place, and it does not answer a PING")
            if self._transport is not None:
                self._transport.abort()
        await self._gone.wait()
        return False

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def close(self, reason: str) -> None:
        """End the connection; what was said before is still written."""
        if self._transport is None or self._transport.is_closing():
            return
        log.warning("! %s closed: %s", self.address, reason)
        self._write_now()
        self._transport.close()

    def _keep_alive(self) -> None:
        """Called once per interval: one silent interval earns a PING, a second one the end."""
        if self._transport is None:
            return
        self._timer = self.ground.call_later(self.ground.settings.keep_alive_s, self._keep_alive)
        if self._transport.is_closing():
            self._transport.abort()  # The client does not even take what was said last.
        elif not self.connected:
            self.close("no CONNECT within keepAliveIntervalSeconds")
        elif self._shows_life(self._transport):
            self._heard = self._pinged = False
        elif not self._pinged:
            self._pinged = True
            self.send(answers.PING)
        else:
            self.close("no answer to PING within keepAliveIntervalSeconds")
            self._transport.abort()

    def _shows_life(self, transport: asyncio.Transport) -> bool:
        """Bytes came, or went: a client that is not read because it does not read is alive while it takes some.

        That it is not read for another reason is not its fault.
        """
        unsent = transport.get_write_buffer_size()
        drained = unsent < self._unsent_before
        self._unsent_before = unsent
        if self._not_reading & UNSENT_ANSWERS:
            return self._heard or drained
        return self._heard or self._not_reading != 0

    # In

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._probe is not None:
            self._probe.set_result(None)
            self._probe = None
        try:
            frames = self._inbox.received(nbytes)
        except ProtocolError as error:
            self.close(f"{type(error).__name__}: {error}")
            return
        if len(frames) > FRAMES_PER_TURN_MAX:
            self._stop_reading(UNHANDLED_FRAMES)
            self._handle_in_slices(frames)
        else:
            self._handle(frames)

    def _handle_in_slices(self, frames: list[tuple[int, int, int]]) -> None:
        """Nothing is read meanwhile, so the frames stay where they are in the inbox."""
        self._handle(frames[:FRAMES_PER_TURN_MAX])
        rest = frames[FRAMES_PER_TURN_MAX:]
        if self._transport is None or self._transport.is_closing():
            return
        if rest:
            self.ground.call_later(0, lambda: self._handle_in_slices(rest))
        else:
            self._read_on(UNHANDLED_FRAMES)

    def _handle(self, frames: list[tuple[int, int, int]]) -> None:
        buffer, view = self._inbox.buffer, self._inbox.view
        try:
            for start, command_end, end in frames:
                if buffer[start : start + 3] == _SEND_PREFIX and buffer[start + 3] == command_end - start - 4:
                    send = parse_send(view[start + 4 : command_end])
                    self._publish(send, view[command_end:end])
                else:
                    self._command(parse_command(view[start:command_end]), view[command_end:end])
                if self._transport is None or self._transport.is_closing():
                    return
            self._account()
        except (ProtocolError, DecodeError) as error:
            self.close(f"{type(error).__name__}: {error}")
        except Exception:  # A defect of ours must cost this client its connection, not all of them theirs.
            log.exception("! %s closed: a command could not be handled", self.address)
            self.close("internal error")

    def eof_received(self) -> bool:
        return False

    def _command(self, command: BaseCommand, rest: memoryview) -> None:
        if not self.connected and command.type not in ALLOWED_BEFORE_CONNECT:
            raise ProtocolError(f"{BaseCommand.Type.Name(command.type)} before CONNECT")
        if command.type == BaseCommand.SEND:
            self._publish(command.send, rest)
            return
        handler = HANDLERS.get(command.type)
        if handler is None:
            raise ProtocolError(f"{BaseCommand.Type.Name(command.type)} is not for a broker")
        if command.type not in WITHOUT_TEXT:
            refuse_broken_text(command)
        handler(self, command)

    def _publish(self, send: CommandSend, body: memoryview) -> None:
        producer_id = send.producer_id
        port = self.producers.get(producer_id)
        producer = None if port is None else port.producer
        if port is None or producer is None or producer.waiting or producer.fenced:
            if producer_id in self.closed_producers:
                return
            raise ProtocolError(f"SEND from producer {producer_id}, which is not open here")
        sequence_id = send.sequence_id
        size = len(body)
        self._pending_publishes += 1
        self._pending_bytes += size
        port.unanswered += 1
        if not checksum_matches(body):
            error = ChecksumMismatch("Checksum failed on the broker")
            port.refused(sequence_id, size, error)
        elif send.HasField("txnid_most_bits"):
            port.refused(sequence_id, size, _transactions_are_off())
        else:
            producer.publish(
                sequence_id,
                send.highest_sequence_id,
                send.num_messages if send.num_messages > 0 else 1,
                bytes(body) if self._copy else body,
                chunk=send.is_chunk,
            )

    def ignore_sends_of(self, producer_id: int) -> None:
        """The broker closed the producer; the client does not know yet."""
        self.closed_producers[producer_id] = None
        if len(self.closed_producers) > CLOSED_PRODUCERS_MAX:
            del self.closed_producers[next(iter(self.closed_producers))]

    # Requests that take time

    def run(
        self, work: Coroutine[object, object, None], refuse: Callable[[BrokerError], bytes], name: str
    ) -> None:
        """Run a request that has to wait; a BrokerError is answered by what `refuse` makes of it."""
        self.ground.spawn(self._guarded(work, refuse), f"{name} {self.address}")

    async def _guarded(
        self, work: Coroutine[object, object, None], refuse: Callable[[BrokerError], bytes]
    ) -> None:
        try:
            await work
        except BrokerError as error:
            log.info("! %s %s: %s", self.address, type(error).__name__, error)
            self.send(refuse(error))
        except ProtocolError as error:
            self.close(f"{type(error).__name__}: {error}")
        except Exception:  # As in buffer_updated: a defect costs one connection.
            log.exception("! %s closed: a request could not be handled", self.address)
            self.close("internal error")


async def _leave_topics(producers: list[Producer], gone: asyncio.Event) -> None:
    try:
        for producer in producers:
            await producer.topic.remove_producer(producer)
    finally:
        gone.set()


def _transactions_are_off() -> BrokerError:
    return NotAllowed("Transactions are not enabled")
