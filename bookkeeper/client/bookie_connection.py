"""BookieConnection: the bytes of one TCP connection to a bookie, cut into frames of BookKeeper's v2 wire.

A frame is an int32 length and so many bytes. This class finds frames; their meaning is the business of
`BookKeeperLedgerClient`, which owns the connection and makes the next one.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Protocol, cast

from foundation.model.entry import Buffer
from protocol.bookie_frame import BATCH_OVERHEAD_BYTES, LENGTH_BYTES, OP_ADD, FrameError

log = logging.getLogger(__name__)

_ADD_FRAME = struct.Struct(">iBBHiqq")
"""The whole answer to an add; of its seven fields length, opcode, result code, ledger and entry are used."""
_HEAD_BYTES = 20
_ADD_ANSWER = struct.Struct(f">{_HEAD_BYTES}sq")
"""The same bytes: everything that answers to adds of one ledger with one result share, and the entry."""


class FrameReceiver(Protocol):
    """The owner of a connection."""

    def added(self, rc: int, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """Answers to adds with the same result and ledger have arrived.

        Raises FrameError for an entry that was not added.
        """
        ...

    def received(self, packet: memoryview) -> None:
        """Any other answer has arrived, without its length. Raises FrameError for one that was not asked for."""
        ...

    def connection_lost(self, connection: FrameCutter, error: Exception | None) -> None:
        """The connection has ended; called once."""
        ...


class FrameCutter(asyncio.BaseProtocol):
    """The part of a connection that does not depend on how asyncio hands bytes over."""

    def __init__(self, receiver: FrameReceiver, frame_bytes_max: int) -> None:
        """Frames longer than `frame_bytes_max` and a batch's overhead end it."""
        self._receiver = receiver
        self._length_max = frame_bytes_max + BATCH_OVERHEAD_BYTES
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        """Bytes of a frame that has not arrived as a whole."""
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        """Bytes that the first waiting frame needs; with fewer there is nothing to cut."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have other base classes

    @property
    def is_open(self) -> bool:
        """True from the moment when the connection is made until it is lost."""
        return self._transport is not None

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._transport = None
        self._receiver.connection_lost(self, error)

    def write(self, data: Buffer) -> None:
        """Sends whole frames; does nothing before the connection is made."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Ends the connection at once, without sending what waits."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the loop; delivers every frame that is whole."""
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        # Join when a frame is whole: joining on each arrival copies a long frame again and again.
        if self._waiting_bytes < self._wanted_bytes:
            return
        if len(self._chunks) > 1:
            data = b"".join(self._chunks)
        try:
            offset = self._cut_frames(data)
        except FrameError as error:
            log.error("the bookie sent bytes that are no answer: %s; connection dropped", error)
            self._chunks.clear()
            self.abort()
            return
        self._chunks = [data[offset:]] if offset < len(data) else []
        self._waiting_bytes = len(data) - offset

    def _cut_frames(self, data: bytes) -> int:
        """Delivers the whole frames in `data`; returns the offset after them."""
        view = memoryview(data)
        receiver = self._receiver
        end = len(data)
        offset = 0
        self._wanted_bytes = LENGTH_BYTES
        while offset + LENGTH_BYTES <= end:
            # One unpack for the answer to an add, which comes once per entry: the general decoder makes a slice and an
            # object for each.
            if offset + _ADD_FRAME.size <= end:
                length, _, opcode, _, rc, ledger_id, _ = _ADD_FRAME.unpack_from(data, offset)
                if opcode == OP_ADD and length == _ADD_FRAME.size - LENGTH_BYTES:
                    entry_ids = _equal_answers(view[offset:])
                    receiver.added(rc, ledger_id, entry_ids)
                    offset += _ADD_FRAME.size * len(entry_ids)
                    continue
            length = int.from_bytes(view[offset : offset + LENGTH_BYTES], "big", signed=True)
            if not LENGTH_BYTES <= length <= self._length_max:
                raise FrameError(f"frame of {length} bytes, allowed are {LENGTH_BYTES} to {self._length_max}")
            stop = offset + LENGTH_BYTES + length
            if stop > end:
                self._wanted_bytes = stop - offset
                break
            receiver.received(view[offset + LENGTH_BYTES : stop])
            offset = stop
        return offset


class BookieConnection(FrameCutter, asyncio.Protocol):
    """asyncio's protocol object of one connection."""


def _equal_answers(data: memoryview) -> list[int]:
    """Returns the entries of the first answer to an add, and of those after it with the same result and ledger."""
    entry_ids: list[int] = []
    first = bytes(data[:_HEAD_BYTES])
    for head, entry_id in _ADD_ANSWER.iter_unpack(data[: len(data) - len(data) % _ADD_ANSWER.size]):
        if head != first:
            break
        entry_ids.append(entry_id)
    return entry_ids
