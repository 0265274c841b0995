"""A hand-made Pulsar client: it sends exactly the bytes it is told to and hands out every frame that comes.

Law of the place: it shares no framing code with the broker under test, keeps no protocol state, and never
retries; what a test did not ask for does not happen. The one courtesy is PONG for PING (see `auto_pong`).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from crc32c import crc32c
from google.protobuf.message import DecodeError

from protocol.pulsar_api_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata
from tests.support.command_json import Json, fill

_SIZES: Final = struct.Struct(">II")
_CHECKSUM_MAGIC: Final = b"\x0e\x01"
_ENTRY_METADATA_MAGIC: Final = b"\x0e\x02"
ANSWER_TIMEOUT_S: Final = 60.0
"""How long an answer may take on a busy machine before the test gives up."""

NO_REQUEST: Final = 2**64 - 1
EARLIEST: Final[dict[str, Json]] = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
LATEST: Final[dict[str, Json]] = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}


class PeerClosedError(ConnectionError):
    """The broker has closed the connection, and every frame that came before has been handed out."""


def build_command(type_name: str, fields: Mapping[str, Json]) -> BaseCommand:
    """A command by the name of its type: `build_command("FLOW", {"consumer_id": 1, "messagePermits": 5})`."""
    command = BaseCommand()
    command.type = BaseCommand.Type.Value(type_name)
    payload_field = BaseCommand.DESCRIPTOR.fields_by_number[command.type]
    child = getattr(command, payload_field.name)
    child.SetInParent()
    fill(child, fields)
    return command


def simple_frame(command: BaseCommand) -> bytes:
    body = command.SerializePartialToString()
    return _SIZES.pack(len(body) + 4, len(body)) + body


def payload_frame(
    command: BaseCommand, metadata: MessageMetadata, payload: bytes, *, checksum: str = "ok"
) -> bytes:
    """`checksum`: ok, bad (one bit wrong), none (the block is left out)."""
    packed = metadata.SerializePartialToString()
    covered = struct.pack(">I", len(packed)) + packed + payload
    if checksum != "none":
        value = crc32c(covered) ^ (1 if checksum == "bad" else 0)
        covered = _CHECKSUM_MAGIC + struct.pack(">I", value) + covered
    body = command.SerializePartialToString()
    return _SIZES.pack(4 + len(body) + len(covered), len(body)) + body + covered


@dataclass(frozen=True, slots=True)
class Entry:
    """The bytes behind a MESSAGE command, decoded. `checksum`: ok, bad, none."""

    broker_entry_metadata: BrokerEntryMetadata | None
    checksum: str
    metadata: MessageMetadata
    payload: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    command: BaseCommand
    trailing: bytes
    """Everything behind the command: the entry of a MESSAGE, nothing otherwise."""

    @property
    def type_name(self) -> str:
        return BaseCommand.Type.Name(self.command.type)

    def entry(self) -> Entry:
        """ValueError where the bytes behind the command are no entry."""
        rest = self.trailing
        broker_entry_metadata = None
        if rest[:2] == _ENTRY_METADATA_MAGIC:
            size = int.from_bytes(rest[2:6], "big")
            broker_entry_metadata = BrokerEntryMetadata.FromString(rest[6 : 6 + size])
            rest = rest[6 + size :]
        checksum = "none"
        if rest[:2] == _CHECKSUM_MAGIC:
            checksum = "ok" if crc32c(rest[6:]) == int.from_bytes(rest[2:6], "big") else "bad"
            rest = rest[6:]
        size = int.from_bytes(rest[:4], "big")
        if len(rest) < 4 + size:
            raise ValueError(f"metadata of {size} bytes in {len(rest)}")
        return Entry(
            broker_entry_metadata, checksum, MessageMetadata.FromString(rest[4 : 4 + size]), rest[4 + size :]
        )


class RawConnection:
    """One TCP connection. Reads always, so that the broker is never held up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames: asyncio.Queue[Frame | Exception] = asyncio.Queue()
        self._end: Exception | None = None
        self.auto_pong = True
        self._pump = asyncio.create_task(self._read_frames())

    @classmethod
    async def open(cls, pulsar_url: str, *, source: str | None = None) -> RawConnection:
        """`source`: the address that the broker sees as the client's."""
        parts = urlsplit(pulsar_url)
        local = None if source is None else (source, 0)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=local)
        return cls(reader, writer)

    async def connect(self, *, protocol_version: int = 19, token: str | None = None, **fields: Json) -> Frame:
        """The handshake; `fields` are further fields of CONNECT."""
        proof: dict[str, Json] = {"auth_method_name": "none"}
        if token is not None:
            proof = {"auth_method_name": "token", "auth_data": token.encode().hex()}
        self.send("CONNECT", client_version="raw", protocol_version=protocol_version, **proof, **fields)
        return await self.receive("CONNECTED")

    def send(self, type_name: str, **fields: Json) -> None:
        self.send_bytes(simple_frame(build_command(type_name, fields)))

    def send_bytes(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Waits until the socket has taken what was sent; ends quietly where the broker has closed."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self, *type_names: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Frame:
        """The next frame. PeerClosedError, TimeoutError, or AssertionError where it is of no named type."""
        async with asyncio.timeout(timeout_s):
            frame = await self._next()
        if type_names and frame.type_name not in type_names:
            raise AssertionError(f"{type_names} expected, {frame.type_name} came: {frame.command}")
        return frame

    async def quiet(self, seconds: float) -> Frame | None:
        """The frame that came within `seconds`, or None. PeerClosedError where the connection ended."""
        try:
            return await self.receive(timeout_s=seconds)
        except TimeoutError:
            return None

    async def until_closed(self, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Frame]:
        """Every frame up to the broker's close. TimeoutError where it keeps the connection open."""
        frames: list[Frame] = []
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    frames.append(await self._next())
                except PeerClosedError:
                    return frames

    async def close(self) -> None:
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump
        self._writer.transport.abort()

    async def _next(self) -> Frame:
        if self._end is not None:
            raise self._end
        frame = await self._frames.get()
        if isinstance(frame, Exception):
            self._end = frame
            raise frame
        return frame

    async def _read_frames(self) -> None:
        try:
            while True:
                total, size = _SIZES.unpack(await self._reader.readexactly(_SIZES.size))
                body = await self._reader.readexactly(total - 4)
                frame = Frame(BaseCommand.FromString(body[:size]), body[size:])
                if self.auto_pong and frame.command.type == BaseCommand.PING:
                    self.send("PONG")
                else:
                    self._frames.put_nowait(frame)
        except asyncio.IncompleteReadError as error:
            torn = len(error.partial) > 0
            self._frames.put_nowait(AssertionError("a frame was cut off") if torn else PeerClosedError())
        except ConnectionError:
            self._frames.put_nowait(PeerClosedError())
        except (DecodeError, ValueError, struct.error) as error:
            self._frames.put_nowait(AssertionError(f"the broker sent what is no frame: {error}"))
