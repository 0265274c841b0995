"""ReceiveMemory: who gives memory up, in which order, and that its account is right."""

from __future__ import annotations

import struct
from random import Random

import pytest

from protocol.receive_buffer import ReceiveBuffer
from protocol.receive_buffer_sizer import ReceiveBufferSizer
from protocol.receive_memory import SCRATCH_BYTES, STALE_NS, ReceiveMemory

FRAME_MAX = 1 << 20


class Peer:
    """One connection's receive buffer, fed by hand."""

    def __init__(self, memory: ReceiveMemory, *, shared: bool = True, accepted: bool = True) -> None:
        self.ended = False
        self.paused = False
        self.inbox = ReceiveBuffer(
            ReceiveBufferSizer(),
            frame_bytes_max=FRAME_MAX,
            shared=shared,
            memory=memory,
            end_connection=self._end,
            accepted=accepted,
        )

    def _end(self) -> bool:
        self.ended = not self.paused
        return self.ended

    def is_over(self) -> bool:
        return self.ended

    def feed(self, data: bytes) -> int:
        """Returns the number of frames that became complete."""
        found = 0
        while data and not self.ended:
            free = self.inbox.writable()
            if self.is_over():
                break  # As `ServerCnx` does: the bytes before these are gone.
            count = min(len(free), len(data))
            free[:count] = data[:count]
            data = data[count:]
            found += len(self.inbox.received(count))
            self.inbox.settle()
        return found


def frame(size: int) -> bytes:
    return struct.pack(">II", size - 4, 1) + bytes(size - 8)


def half(size: int = 400_000) -> bytes:
    return frame(size)[: size // 2]


@pytest.fixture
def clock() -> list[int]:
    return [0]


def a_memory(bytes_max: int, clock: list[int]) -> ReceiveMemory:
    return ReceiveMemory(bytes_max, lambda: clock[0])


@pytest.mark.parametrize("shared", [False, True])
def test_connection_without_unfinished_frame_has_no_memory(shared: bool) -> None:
    memory = ReceiveMemory()
    peers = [Peer(memory, shared=shared) for _ in range(100)]
    for peer in peers:
        assert peer.feed(frame(100) * 3) == 3
    assert memory.used_bytes == 0


def test_rest_of_a_small_frame_takes_as_many_bytes_as_have_arrived() -> None:
    memory = ReceiveMemory()
    peer = Peer(memory)
    peer.feed(frame(100) + frame(100)[:37])
    assert (memory.used_bytes, peer.inbox.unfinished_bytes) == (37, 37)
    assert peer.feed(frame(100)[37:]) == 1
    peer.inbox.writable()
    assert memory.used_bytes == 0


def test_idle_memory_is_released_before_any_frame_is_ended(clock: list[int]) -> None:
    memory = a_memory(10_000_000, clock)
    idle, stale, late = Peer(memory), Peer(memory), Peer(memory)
    idle.feed(frame(SCRATCH_BYTES) * 200)
    assert memory.used_bytes > 500_000, "large reads have memory of their own"
    stale.feed(half())
    clock[0] = 2 * STALE_NS
    memory.resize(memory.used_bytes)
    late.feed(half(60_000))
    assert [idle.ended, stale.ended, late.ended] == [False] * 3
    assert idle.feed(frame(100)) == 1


def test_frames_that_are_unfinished_for_long_are_ended_the_oldest_first(clock: list[int]) -> None:
    memory = a_memory(10_000_000, clock)
    first, second = Peer(memory), Peer(memory)
    first.feed(half())
    clock[0] = 1
    second.feed(half())
    clock[0] = STALE_NS + 1
    late = Peer(memory)
    memory.resize(memory.used_bytes)
    late.feed(half(60_000))
    assert (first.ended, second.ended, late.ended) == (True, False, False)


def test_connection_that_asks_for_more_is_ended_when_all_others_are_young(clock: list[int]) -> None:
    memory = a_memory(1_000_000, clock)
    early, late = Peer(memory), Peer(memory)
    early.feed(half())
    late.feed(half(1_000_000))
    assert (early.ended, late.ended) == (False, True)
    assert memory.used_bytes <= 1_000_000
    assert early.feed(frame(400_000)[200_000:]) == 1


def test_connections_before_their_handshake_are_ended_first_for_an_accepted_one(clock: list[int]) -> None:
    memory = a_memory(10_000_000, clock)
    slow = Peer(memory)
    slow.feed(half())
    clock[0] = 2 * STALE_NS
    strangers = [Peer(memory, accepted=False) for _ in range(3)]
    for stranger in strangers:
        stranger.feed(half())
    late = Peer(memory)
    memory.resize(memory.used_bytes)
    late.feed(half(60_000))
    assert [stranger.ended for stranger in strangers] == [True, False, False]
    assert not slow.ended
    assert not late.ended


def test_connection_before_its_handshake_ends_no_accepted_one(clock: list[int]) -> None:
    memory = a_memory(10_000_000, clock)
    slow, stranger = Peer(memory), Peer(memory, accepted=False)
    slow.feed(half())
    clock[0] = 2 * STALE_NS
    memory.resize(memory.used_bytes)
    stranger.feed(half())
    assert (slow.ended, stranger.ended) == (False, True)
    memory.resize(10_000_000)
    assert slow.feed(frame(400_000)[200_000:]) == 1


def test_connection_that_the_broker_does_not_read_is_not_ended(clock: list[int]) -> None:
    memory = a_memory(1_000_000, clock)
    paused, late = Peer(memory), Peer(memory)
    paused.feed(half())
    paused.paused = True
    clock[0] = 2 * STALE_NS
    late.feed(half(1_000_000))
    assert (paused.ended, late.ended) == (False, True)


def test_frames_that_wait_for_a_later_turn_keep_their_memory(clock: list[int]) -> None:
    memory = a_memory(100_000, clock)
    busy = Peer(memory)
    data = frame(100) * 50
    busy.inbox.writable()[: len(data)] = data
    frames = busy.inbox.received(len(data))
    busy.inbox.keep()
    busy.inbox.unhandled = True
    Peer(memory).feed(half())
    assert [bytes(busy.inbox.buffer[start:end]) for start, _, end in frames] == [frame(100)[8:]] * 50
    busy.inbox.close()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_account_equals_the_memory_that_connections_have(seed: int, shared: bool, clock: list[int]) -> None:
    rng = Random(seed)
    memory = a_memory(2_000_000, clock)
    peers: list[Peer] = []
    for _ in range(400):
        clock[0] += rng.randrange(STALE_NS // 10)
        peers = [peer for peer in peers if not peer.ended]
        if not peers or rng.random() < 0.2:
            peers.append(Peer(memory, shared=shared))
        peer = rng.choice(peers)
        if rng.random() < 0.1:
            peer.inbox.close()
            peers.remove(peer)
            continue
        if not peer.inbox.unfinished_bytes:
            peer.feed(frame(rng.choice([20, 1000, 30_000, 500_000])) * rng.choice([1, 1, 5]))
        if not peer.inbox.unfinished_bytes and rng.random() < 0.5:
            peer.feed(half(rng.choice([100, 20_000, 1_000_000])))
        own = [one for one in peers if one.inbox.buffer is not memory.scratch]
        assert memory.used_bytes == sum(len(one.inbox.buffer) for one in own)
        assert memory.used_bytes <= 2_000_000
    for peer in peers:
        peer.inbox.close()
    assert memory.used_bytes == 0


def test_memory_leaves_the_small_account_when_a_connection_begins_to_produce(clock: list[int]) -> None:
    memory = a_memory(10_000_000, clock)
    peers = [Peer(memory, accepted=False) for _ in range(3)]
    for peer in peers:
        peer.inbox.accept(FRAME_MAX)
        peer.feed(half())
    assert memory.idle_bytes == memory.used_bytes
    for _ in range(2):
        peers[0].inbox.begin_to_produce(FRAME_MAX)
    assert memory.idle_bytes == memory.used_bytes * 2 // 3
    peers[0].inbox.close()
    assert memory.idle_bytes == memory.used_bytes
    for peer in peers:
        peer.inbox.close()
    assert (memory.idle_bytes, memory.used_bytes) == (0, 0)
