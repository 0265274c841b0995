"""ReceiveBuffer: frames stay unchanged, memory stays small, and pieces of any size give the same frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.receive_buffer import ReceiveBuffer
from protocol.receive_buffer_sizer import ReceiveBufferSizer

LIMIT = 1 << 20


def inbox(*, shared: bool) -> ReceiveBuffer:
    return ReceiveBuffer(ReceiveBufferSizer(64, 1024, 65536), frame_bytes_max=LIMIT, shared=shared)


def frame(command: bytes, rest: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(command) + len(rest), len(command)) + command + rest


def feed(buffer: ReceiveBuffer, data: bytes, piece: int) -> list[memoryview]:
    """Feeds the data in pieces; returns the frames as views of the buffer."""
    found = []
    while data:
        free = buffer.writable()
        count = min(len(free), piece, len(data))
        free[:count] = data[:count]
        data = data[count:]
        for start, _, end in buffer.received(count):
            view = buffer.view[start:end]
            found.append(memoryview(bytes(view)) if buffer.transient else view)
        buffer.settle()
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=12))
def test_frames_are_the_same_whole_and_byte_by_byte(sizes: list[int]) -> None:
    frames = [frame(b"c" * (size % 50), bytes([size % 256]) * size) for size in sizes]
    data = b"".join(frames)
    whole = [bytes(view) for view in feed(inbox(shared=True), data, len(data) or 1)]
    single = [bytes(view) for view in feed(inbox(shared=True), data, 1)]
    assert whole == single == [one[8:] for one in frames]


def test_frames_of_a_shared_buffer_never_change() -> None:
    frames = [frame(b"c", bytes([number]) * 700) for number in range(200)]
    views = feed(inbox(shared=True), b"".join(frames), 1000)
    assert [bytes(view) for view in views] == [one[8:] for one in frames]


def test_copied_mode_reuses_one_buffer() -> None:
    buffer = inbox(shared=False)
    kept = set()
    for number in range(200):
        feed(buffer, frame(b"c", bytes([number]) * 700), 10_000)
        kept.add(id(buffer.buffer))
    assert len(kept) <= 3, "it grows and then stays"


@pytest.mark.parametrize("shared", [False, True])
def test_long_frame_gets_memory_as_its_bytes_arrive(shared: bool) -> None:
    buffer = inbox(shared=shared)
    data = frame(b"c", b"x" * (LIMIT - 100))
    buffer.writable()[:8] = data[:8]
    assert buffer.received(8) == []
    buffer.settle()
    buffer.writable()
    assert len(buffer.buffer) < 256 * 1024, "a size field alone is a claim"
    [view] = feed(buffer, data[8:], 4096)
    assert bytes(view) == data[8:]


@pytest.mark.parametrize("shared", [False, True])
def test_size_above_the_limit_is_refused_as_soon_as_it_has_arrived(shared: bool) -> None:
    for data, refused in [((LIMIT - 4).to_bytes(4, "big"), False), ((LIMIT - 3).to_bytes(4, "big"), True)]:
        buffer = inbox(shared=shared)
        if refused:
            with pytest.raises(ProtocolError, match="the limit is"):
                feed(buffer, data, 4)
        else:
            feed(buffer, data, 4)
