"""The frame decoder by itself: any bytes in any pieces give the same frames, or one clear error."""

from __future__ import annotations

import contextlib
import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.frame import metadata_span
from protocol.message_metadata import read_facts
from protocol.receive_buffer import ReceiveBuffer
from protocol.receive_buffer_sizer import ReceiveBufferSizer
from protocol.sent_body import Judgement, judge_body
from tests.fuzz import corpus

LIMIT = 20_000


def receive_buffer(*, shared: bool, limit: int = LIMIT) -> ReceiveBuffer:
    return ReceiveBuffer(ReceiveBufferSizer(64, 512, 4096), frame_bytes_max=limit, shared=shared)


def cut(pieces: list[bytes], *, shared: bool, limit: int = LIMIT) -> list[tuple[bytes, bytes]]:
    """The frames as (command, rest), fed in `pieces`; a piece longer than the free space is fed in several."""
    inbox = receive_buffer(shared=shared, limit=limit)
    frames = []
    for piece in pieces:
        while piece:
            free = inbox.writable()
            taken = min(len(piece), len(free))
            assert taken > 0
            free[:taken] = piece[:taken]
            piece = piece[taken:]
            found = inbox.received(taken)
            frames += [
                (bytes(inbox.view[start:command_end]), bytes(inbox.view[command_end:end]))
                for start, command_end, end in found
            ]
            inbox.settle()
    return frames


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(one % (len(data) + 1) for one in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 100_000), max_size=30), shared=st.booleans())
def test_frames_are_the_same_in_any_pieces(seed: int, cuts: list[int], shared: bool) -> None:
    rng = Random(seed)
    sent = [corpus.any_frame(rng) for _ in range(rng.randrange(1, 12))]
    data = b"".join(sent)
    got = cut(in_pieces(data, cuts), shared=shared)
    assert len(got) == len(sent)
    for frame, (command, rest) in zip(sent, got, strict=True):
        assert frame[8:] == command + rest
        assert int.from_bytes(frame[4:8], "big") == len(command)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=10), shared=st.booleans())
def test_any_bytes_give_frames_or_one_protocol_error(data: bytes, cuts: list[int], shared: bool) -> None:
    try:
        frames = cut(in_pieces(data, cuts), shared=shared)
    except ProtocolError:
        return
    assert sum(8 + len(command) + len(rest) for command, rest in frames) <= len(data)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutated_frame_gives_frames_or_one_protocol_error(seed: int) -> None:
    rng = Random(seed)
    data = corpus.mutated(corpus.any_frame(rng), rng)
    with contextlib.suppress(ProtocolError):
        cut([data], shared=rng.random() < 0.5)


@settings(max_examples=500, deadline=None)
@given(body=st.binary(max_size=300))
def test_any_entry_is_read_or_refused(body: bytes) -> None:
    assert judge_body(bytearray(body), 0, memoryview(body)) in Judgement
    try:
        start, end = metadata_span(body)
    except ValueError:
        return
    assert 0 <= start <= end <= len(body)
    with contextlib.suppress(ProtocolError):
        read_facts(body)


def test_frame_limit_counts_the_size_field() -> None:
    at_limit = (LIMIT - 4).to_bytes(4, "big")
    assert cut([at_limit], shared=True) == []
    with pytest.raises(ProtocolError, match=str(LIMIT + 1)):
        cut([(LIMIT - 3).to_bytes(4, "big")], shared=True)


@pytest.mark.parametrize("shared", [True, False])
def test_long_frame_arrives_whole(shared: bool) -> None:
    body = Random(1).randbytes(3_000_000)
    frame = (len(body) + 6).to_bytes(4, "big") + b"\x00\x00\x00\x02ab" + body
    small = corpus.any_frame(Random(2))
    data = small + frame + small
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    commands = cut(pieces, shared=shared, limit=corpus.FRAME_BYTES_MAX)
    assert [len(command) + len(rest) + 8 for command, rest in commands] == [
        len(small),
        len(frame),
        len(small),
    ]
    assert commands[1] == (b"ab", body)


@pytest.mark.parametrize("shared", [True, False])
def test_claimed_size_alone_gets_little_memory(shared: bool) -> None:
    inbox = receive_buffer(shared=shared, limit=corpus.FRAME_BYTES_MAX)
    header = (corpus.FRAME_BYTES_MAX - 4).to_bytes(4, "big") + b"\x00\x00\x00\x08"
    inbox.writable()[: len(header)] = header
    inbox.received(len(header))
    inbox.settle()
    inbox.writable()
    assert len(inbox.buffer) <= 256 * 1024
