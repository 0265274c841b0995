"""A client of the data port without a socket: bytes go in as a loop would bring them, frames come out of a transport that
a test can stop.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Coroutine, Iterable
from typing import cast

from google.protobuf.message import Message

from broker.compose.background_tasks import BackgroundTasks
from broker.net.connection_context import ConnectionContext, ProducerNames
from broker.net.server_cnx import ServerCnx
from broker.net.settings import NetSettings
from broker.security.audit import AuditTrail
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.settings import AuthorizationSettings
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.messages import message
from tests.fakes.stage import TOPIC, Stage


class FakeTransport:
    """Takes everything unless `stuck`; then it keeps what is written, and asks for less above 1,000 bytes."""

    def __init__(self, cnx: ServerCnx) -> None:
        self.cnx = cnx
        self.written = bytearray()
        self.kept = bytearray()
        self.stuck = False
        self.reading = True
        self.closing = self.aborted = False
        self.writes = 0

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.kept)

    def write(self, data: bytes | memoryview) -> None:
        self.writes += 1
        if not self.stuck:
            self.written += data
            return
        self.kept += data
        if len(self.kept) > 1000 and self.cnx.outbox.writable:
            self.cnx.pause_writing()

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        self.write(b"".join(parts))

    def take(self) -> None:
        """The client reads again."""
        self.stuck = False
        self.written += self.kept
        self.kept.clear()
        if not self.cnx.outbox.writable:
            self.cnx.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class Port:
    """The data port of a stage."""

    def __init__(self, stage: Stage, **settings: object) -> None:
        self.stage = stage
        self.tasks = BackgroundTasks()
        config = NetSettings(**{"keep_alive_s": 30, **settings})  # type: ignore[arg-type]
        self.context = ConnectionContext(
            registry=stage.registry,
            partitioned=stage.partitioned,
            metadata=stage.environment.metadata,
            settings=config,
            turn=stage.turn,
            call_later=lambda seconds, callback: stage.timers.append((seconds, callback)),
            due_later=lambda seconds, callback: stage.timers.append((seconds, callback)),
            spawn=cast("Callable[[Coroutine[object, object, None], str], object]", self.tasks.spawn),
            wall_ms=lambda: stage.wall_ms,
            now_ns=lambda: stage.now_ns,
            producer_names=ProducerNames("standalone-0"),
            authorizer=Authorizer(AuthorizationSettings(), stage.namespaces),
            audit=AuditTrail(lambda: 0),
            server_version="test",
        )

    async def client(self, *, connect: bool = True, version: int = 19) -> Client:
        if not self.stage.namespaces.exists("public/default"):
            await self.stage.namespaces.open()
        client = Client(self)
        if connect:
            client.say(BaseCommand.CONNECT, "connect", client_version="t", protocol_version=version)
            assert [frame.type for frame in await client.hear()] == [BaseCommand.CONNECTED]
        return client


class Client:
    def __init__(self, port: Port) -> None:
        self.port = port
        self.cnx = ServerCnx(port.context)
        self.transport = FakeTransport(self.cnx)
        self.cnx.connection_made(self.transport)  # type: ignore[arg-type]
        self._requests = itertools.count(1)
        self._heard = 0

    def feed(self, data: bytes) -> None:
        while data and not self.transport.closing:
            space = self.cnx.get_buffer(-1)
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self.cnx.buffer_updated(count)
            data = data[count:]

    def say(self, kind: BaseCommand.Type.ValueType, field: str, **values: object) -> int:
        """Answers the request id, where the command has one."""
        command = BaseCommand(type=kind)
        part = getattr(command, field)
        part.SetInParent()
        if "request_id" in part.DESCRIPTOR.fields_by_name and "request_id" not in values:
            values["request_id"] = next(self._requests)
        for name, value in values.items():
            if isinstance(value, Message):
                getattr(part, name).CopyFrom(value)
            else:
                setattr(part, name, value)
        self.feed(command_frame(command))
        return cast("int", values.get("request_id", -1))

    def produce(self, producer_id: int = 0, topic: str = TOPIC, **values: object) -> int:
        return self.say(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=producer_id, **values)

    def subscribe(self, consumer_id: int = 0, topic: str = TOPIC, **values: object) -> int:
        values = {"subscription": "s", "subType": 0, "initialPosition": 1, **values}
        return self.say(BaseCommand.SUBSCRIBE, "subscribe", topic=topic, consumer_id=consumer_id, **values)

    def flow(self, permits: int, consumer_id: int = 0) -> None:
        self.say(BaseCommand.FLOW, "flow", consumer_id=consumer_id, messagePermits=permits)

    def publish(
        self,
        sequence_id: int,
        producer_id: int = 0,
        payload: bytes = b"x",
        body: bytes | None = None,
        transaction: int | None = None,
    ) -> None:
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id = producer_id
        command.send.sequence_id = sequence_id
        if transaction is not None:
            command.send.txnid_most_bits = command.send.txnid_least_bits = transaction
        packed = command.SerializeToString()
        body = message(payload, sequence_id=sequence_id) if body is None else body
        self.feed(struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body)

    async def hear(self) -> list[BaseCommand]:
        """The commands that have come since the last time."""
        await self.port.stage.settle()
        found = []
        data = self.transport.written
        while self._heard + 8 <= len(data):
            total, size = struct.unpack_from(">II", data, self._heard)
            found.append(BaseCommand.FromString(bytes(data[self._heard + 8 : self._heard + 8 + size])))
            self._heard += 4 + total
        return found

    async def names(self) -> list[str]:
        return [BaseCommand.Type.Name(command.type) for command in await self.hear()]

    async def lose(self) -> None:
        """The connection breaks."""
        self.transport.closing = True
        self.cnx.connection_lost(None)
        await self.port.stage.settle()
