"""ServerCnx: one client connection, from received bytes to commands.

Frames are cut as they arrive. Runs of SENDs and of ACKs go straight to their producer and consumer, every other command
to its handler in `command_table.py`; all run inside the callback of the event loop, without a task. Parts with one job each:

    ReceiveBuffer   cuts bytes into frames
    ReadGate        stops reading while too much is pending
    Outbox          writes answers once per turn
    Liveness        closes a connection whose client is gone
"""

from __future__ import annotations

import asyncio
import logging
import struct
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import cast

from google.protobuf.message import DecodeError

from broker.net.acks import acknowledge
from broker.net.command_check import UNCHECKED, refuse_broken_text, refuse_incomplete
from broker.net.command_table import ALLOWED_BEFORE_CONNECT, HANDLERS, ROWS
from broker.net.connection_context import ConnectionContext
from broker.net.credentials_refresh import CredentialsRefresh
from broker.net.liveness import Liveness
from broker.net.outbox import Outbox
from broker.net.partition_shares import ShareRegistration
from broker.net.ports import AskedTransaction, ConsumerOnConnection, ProducerOnConnection
from broker.net.read_gate import PENDING_REQUESTS, PUBLISH_RATE, UNHANDLED_FRAMES, UNSENT_ANSWERS, ReadGate
from broker.net.rights import require
from broker.net.sends import publish
from broker.net.topic_list_watcher import TopicListWatcher
from broker.security.principal import NOBODY
from broker.service.transactions.transaction_limits import OpenTransactions
from foundation.loop.slices import Slice, in_slices
from foundation.model.errors import BrokerError, NotAllowed
from foundation.tls.listener import common_name
from protocol import answers
from protocol.commands import parse_command, parse_send
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import BaseCommand
from protocol.send_runs import Frame

log = logging.getLogger("magnetar.net")

_SEND_HEAD = struct.Struct(">IB").unpack_from
_SEND_HEAD_BYTES = 5
_SEND = 0x08063200
"""First four bytes of a SEND: type 6, then field 6 of the command, whose length is the fourth byte."""
_PRODUCER_ID_TAG = 0x08
"""Fifth byte of a SEND that begins with its producer id.

All known clients write the type and the producer id first; a SEND in another order is parsed like any other command."""

_ACK = BaseCommand.ACK
_POSTPONING = PENDING_REQUESTS | PUBLISH_RATE
"""Reasons not to read for which frames that have arrived wait as well."""

CLOSED_PRODUCERS_MAX = 1000
"""Producers closed by the broker that a connection remembers, so that ids of vanished ones do not pile up."""

FRAMES_PER_TURN_MAX = 500
"""Frames handled in one go: 20 ms of lookups. A megabyte of the smallest commands is 75,000 frames, and other
connections wait."""


def _end_unfinished(connection: weakref.ref[ServerCnx]) -> bool:
    found = connection()
    return found is not None and found.end_unfinished()


class ServerCnx(asyncio.BufferedProtocol):
    """A client's connection; the event loop calls it with bytes and with changes of the transport."""

    def __init__(self, context: ConnectionContext) -> None:
        # For its parts: in a cycle it would wait for the collector, or, frozen (`DormantTopics.add`), stay for ever.
        weak: ServerCnx = weakref.proxy(self)
        self.context = context
        """Shared by all connections of the broker."""
        self.protocol_version = 0
        """The lower one of the client's and ours, known after CONNECT."""
        self.client_version = ""
        """Name and version that the client gave."""
        self.accepts_entry_metadata = False
        """The client asked for broker entry metadata (PIP-90) and the broker is configured to show it."""
        self.knows_sources = False
        """The client takes positions of the source in receipts of replicated messages."""
        self.connected = False
        """True once CONNECT was answered."""
        self.principal = NOBODY
        """The roles of the connection; known when CONNECT is answered."""
        self.refresh = CredentialsRefresh(context, weak)
        """Asks for new credentials when those of the client expire."""
        self.address = ""
        """`host:port` of the client."""
        self.common_name: str | None = None
        """The name in the client's certificate, which the handshake has checked; None without one."""
        self.host = ""
        """Address of the client without its port, empty for a connection that was refused."""
        self.producers: dict[int, ProducerOnConnection] = {}
        """Producers by their id, also those that are being opened."""
        self.closed_producers: dict[int, None] = {}
        """Ids of producers that the broker closed; their SENDs are dropped and do not end the connection."""
        self.consumers: dict[int, ConsumerOnConnection] = {}
        """Consumers by their id, also those that are being opened."""
        self.transactions = OpenTransactions()
        """Counts the transactions that the client has begun here."""
        self.asked: AskedTransaction | None = None
        """The transaction of the command that is handled again now."""
        self.watchers: dict[int, TopicListWatcher] = {}
        """Watched topic lists by watcher id."""
        self.shares: dict[int, ShareRegistration] = {}
        """Consumers of Pulsar 5.0 that share partitions, by consumer id."""
        self.sharing = asyncio.Lock()
        """Held while one of these consumers joins or leaves."""
        self.gate = ReadGate(context)
        """Decides when the connection is read."""
        self.outbox = Outbox(context.turn, self.gate)
        """Frames to be written."""
        self.liveness = Liveness(context, weak)
        """Keep-alive."""
        self.inbox = context.receive_buffer(partial(_end_unfinished, weakref.ref(self)))
        """Cuts the received bytes into frames."""
        self._transport: asyncio.Transport | None = None
        # True once the connection was closed here or is lost. Asked after each frame, where asking the transport costs more.
        self._ended = False
        # Frames that wait until requests of the connection have ended, or until a publish rate is kept.
        self._postponed: list[Frame] = []
        # Producers of this connection that exceed a publish rate, each once per limit.
        self._pauses = 0
        # True once the memory of an unfinished frame was taken away; the connection is about to close.
        self._memory_lost = False
        # Set when all producers and consumers of the closed connection have left their topics.
        self._gone = asyncio.Event()

    # The connection's life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection, or refuses it above a limit of connections."""
        # uvloop's transport has all methods without being a subclass.
        self._transport = transport = cast("asyncio.Transport", transport)
        self.gate.attach(transport)
        self.outbox.attach(transport)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        context = self.context
        context.counters.created += 1
        host = peer[0] if isinstance(peer, tuple) else str(peer)
        reason = context.limits.admit(host, len(context.connections), context.settings)
        if reason is not None:
            context.counters.refused += 1
            context.refusals.warning(f"- {self.address} refused: {reason}")
            transport.write(answers.error(answers.NO_REQUEST_ID, NotAllowed.code, reason))
            transport.close()
            return
        self.host = host
        self.common_name = common_name(transport)
        context.connections.add(self)
        transport.set_write_buffer_limits(
            high=context.settings.write_buffer_high_bytes, low=context.settings.write_buffer_low_bytes
        )
        self.liveness.attach(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Removes all producers, consumers and watchers of the client."""
        context = self.context
        context.counters.closed += 1
        context.connections.discard(self)
        if self.host:
            context.limits.leave(self.host)
        self._transport = None
        self._ended = True
        self.liveness.detach()
        self.refresh.detach()
        self.inbox.close()
        for watcher in self.watchers.values():
            watcher.stop()
        context.coordinator_watches.lose(self)
        context.partition_shares.lose(self.shares.values())
        # Emptied first, so that no callback finds a consumer of the closed connection.
        consumers, self.consumers = iter(list(self.consumers.values())), {}
        part, more = Slice(context.now_ns), False
        for port in consumers:
            port.leave()
            if more := part.is_over():
                break
        producers, self.producers = self.producers, {}
        left = [port for port in producers.values() if port.producer is not None]
        if left or more:
            # A task, because the next producer's epoch may have to be stored, and there may be thousands.
            context.spawn(
                self._leave_topics(consumers, left), f"producers and consumers of {self.address} leave"
            )
        else:
            self._gone.set()
        self.gate.detach()
        self.outbox.detach()
        if self.connected:
            log.info("- %s %s", self.address, self.client_version)

    async def _leave_topics(
        self, consumers: Iterator[ConsumerOnConnection], producers: list[ProducerOnConnection]
    ) -> None:
        """Removes the rest of a lost connection's consumers and its producers, then sets `_gone`, also after a failure."""
        try:
            async for port in in_slices(consumers, self.context.now_ns):
                port.leave()
            async for left in in_slices(producers, self.context.now_ns):
                if left.producer is not None:
                    await left.producer.topic.remove_producer(left.producer)
                    left.producer = None
        finally:
            self._gone.set()

    async def still_there(self) -> bool:
        """Returns True when the client answers; another one needs its place.

        Returns False once the connection is closed and its places are free.
        """
        if self._transport is not None and await self.liveness.answers_ping():
            return True
        await self._gone.wait()
        return False

    @property
    def is_open(self) -> bool:
        """False from the moment the connection is lost."""
        return self._transport is not None

    def close(self, reason: str) -> None:
        """Writes waiting frames, then closes; `reason` is logged unless empty. Ignored when it closes already."""
        if self._transport is None or self._transport.is_closing():
            return
        if reason:
            # A peer of another protocol never says CONNECT and may try again at once, so its lines are limited.
            lines = log if self.connected else self.context.refusals
            lines.warning(f"! {self.address} closed: {reason}")
        self.outbox.write_now()
        self._ended = True
        self._transport.close()

    def pause_writing(self) -> None:
        """The transport holds more than the high-water mark. Called by the event loop."""
        self.outbox.pause()

    def resume_writing(self) -> None:
        """The transport holds less than the low-water mark: a sign of life. Called by the event loop."""
        self.liveness.heard = True
        self.outbox.resume()

    def eof_received(self) -> bool:
        """Closes our side too, because the client closes its side."""
        return False

    # In

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns free bytes of the receive buffer for the next read. Called by the event loop."""
        return self.inbox.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handles all frames that are complete now. Called by the event loop after each read."""
        if self._memory_lost:
            # The bytes before these are gone, so nothing can be cut.
            return
        liveness = self.liveness
        liveness.heard = True
        if liveness.probing:
            liveness.answered()
        try:
            frames = self.inbox.received(nbytes)
        except ProtocolError as error:
            self.close(f"{type(error).__name__}: {error}")
            return
        if len(frames) > FRAMES_PER_TURN_MAX:
            self.gate.stop(UNHANDLED_FRAMES)
            self.inbox.keep()
            self.inbox.unhandled = True
            self._handle_in_slices(frames)
        else:
            self._handle(frames)
            self.inbox.settle()

    def _handle_in_slices(self, frames: list[Frame]) -> None:
        """Handles the first frames now and the rest in later turns.

        Nothing is read meanwhile, so the frames stay at their offsets in the receive buffer.
        """
        if self._transport is None or self._transport.is_closing():
            # The buffer of a closed connection is the scratch, in which these offsets mean other bytes.
            return
        self._handle(frames[:FRAMES_PER_TURN_MAX])
        rest = frames[FRAMES_PER_TURN_MAX:]
        if self._transport is None or self._transport.is_closing():
            return
        if rest and self.gate.reasons & _POSTPONING:
            self._postponed += rest
        elif rest:
            # A timer and not the end of the turn: the event loop serves other sockets in between.
            self.context.call_later(0, lambda: self._handle_in_slices(rest))
        elif not self._postponed:
            self.inbox.unhandled = False
            self.gate.go_on(UNHANDLED_FRAMES)

    def _postpone(self, frames: list[Frame]) -> None:
        """Keeps the frames after one that paused the connection; nothing is read until they are handled."""
        if frames:
            self.gate.stop(UNHANDLED_FRAMES)
            self.inbox.keep()
            self.inbox.unhandled = True
            self._postponed += frames

    def _handle_postponed(self) -> None:
        if self._postponed and not self.gate.reasons & _POSTPONING:
            rest, self._postponed = self._postponed, []
            self.context.call_later(0, lambda: self._handle_in_slices(rest))

    def pause(self) -> None:
        """Reads and handles nothing more until `go_on`; calls add up.

        Frames that have arrived wait too, so a client exceeds a publish rate by one message at most.
        """
        self._pauses += 1
        self.gate.stop(PUBLISH_RATE)

    def go_on(self) -> None:
        """Ends one `pause`. With the last one, the frames that wait are handled; then the connection is read."""
        self._pauses -= 1
        if not self._pauses:
            self.gate.go_on(PUBLISH_RATE)
            self._handle_postponed()

    @property
    def unfinished_frame(self) -> int:
        """A number of the frame that is not complete, 0 for none; the same number later is the same frame."""
        return self.inbox.completions + 1 if self.inbox.unfinished_bytes else 0

    def end_unfinished(self) -> bool:
        """Closes the connection for the memory of its unfinished frame, unless the broker itself does not read it."""
        if self.gate.reasons & ~UNSENT_ANSWERS:
            return False
        reason = (
            f"its memory is needed, and it has {self.inbox.unfinished_bytes} bytes of an unfinished frame;"
            " all connections together receive into a quarter of maxMessagePublishBufferSizeInMB"
        )
        self._memory_lost = True
        # Later, because the loop may be asking for memory: libuv crashes when a stream is closed in that callback.
        self.context.call_later(0, lambda: self.close(reason))
        return True

    def _handle(self, frames: list[Frame]) -> None:
        buffer, view = self.inbox.buffer, self.inbox.view
        index, count = 0, len(frames)
        published = False
        try:
            while index < count:
                start, command_end, end = frames[index]
                # A shorter frame is no SEND, and the look could reach beyond the buffer.
                head, tag = _SEND_HEAD(buffer, start) if end - start >= _SEND_HEAD_BYTES else (0, 0)
                # Parsing the inside of a SEND alone saves one of two protobuf objects per run.
                if head == _SEND + command_end - start - 4 and tag == _PRODUCER_ID_TAG:
                    index += publish(self, parse_send(view[start + 4 : command_end]), frames, index)
                    published = True
                else:
                    command = parse_command(view[start:command_end])
                    if command.type == _ACK and self.connected:
                        index += acknowledge(self, command.ack, frames, index)
                    elif command.type == BaseCommand.SEND and self.connected:
                        # Its fields come in an order that no known client writes.
                        if not command.send.HasField("producer_id"):
                            raise ProtocolError("SEND lacks its producer id")
                        index += publish(self, command.send, frames, index)
                        published = True
                    else:
                        self._command(command)
                        index += 1
                if self._ended:
                    return
                if self._pauses:
                    self._postpone(frames[index:])
                    break
            # Once per arrival and not per message: a burst passes the limit by one receive buffer at most.
            if published:
                self.gate.account()
        except (ProtocolError, DecodeError) as error:
            self.close(f"{type(error).__name__}: {error}")
        except Exception:  # A defect of ours must cost this client its connection, not all of them theirs.
            log.exception("! %s closed: a command could not be handled", self.address)
            self.close("internal error")

    def _command(self, command: BaseCommand) -> None:
        if not self.connected and command.type not in ALLOWED_BEFORE_CONNECT:
            raise ProtocolError(f"{BaseCommand.Type.Name(command.type)} before CONNECT")
        handler = HANDLERS.get(command.type)
        if handler is None:
            raise ProtocolError(f"{BaseCommand.Type.Name(command.type)} is not for a broker")
        if command.type not in UNCHECKED:
            refuse_incomplete(command)
            refuse_broken_text(command)
        handler(self, command)

    def ignore_sends_of(self, producer_id: int) -> None:
        """Drops later SENDs of a producer that the broker closed; the client does not know yet."""
        # A dict as an ordered set: the first key is the id that was closed longest ago.
        self.closed_producers[producer_id] = None
        if len(self.closed_producers) > CLOSED_PRODUCERS_MAX:
            del self.closed_producers[next(iter(self.closed_producers))]

    # Out

    def send(self, frame: bytes) -> None:
        """Adds a frame to the outbox."""
        self.outbox.send(frame)

    def require(self, command: BaseCommand) -> None:
        """Raises Unauthorized unless the client has the right of the command's row."""
        require(self, command, ROWS[command.type].right)

    def run(
        self,
        command: BaseCommand,
        work: Coroutine[object, object, None],
        refuse: Callable[[BrokerError], bytes],
        *,
        refusal_level: int = logging.INFO,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        """Asks for the right of the command, then does its work as a task. See `Connection.run`."""

        async def guarded() -> None:
            try:
                self.require(command)
                await work
            except BrokerError as error:
                log.log(refusal_level, "! %s %s: %s", self.address, type(error).__name__, error)
                self.send(refuse(error))
            except ProtocolError as error:
                self.close(f"{type(error).__name__}: {error}")
            except Exception:  # As in `_handle`: a defect of ours costs one connection.
                log.exception("! %s closed: a request could not be handled", self.address)
                self.close("internal error")
            finally:
                # Work that was refused has not begun; Python warns of such work unless it is closed.
                work.close()
                if at_end is not None:
                    at_end()
                self.gate.end_request()
                self._handle_postponed()

        self.gate.begin_request()
        self.context.spawn(guarded(), f"{BaseCommand.Type.Name(command.type)} {self.address}")
