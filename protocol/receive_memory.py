"""ReceiveMemory: bounds the memory into which all connections of a broker receive.

    scratch     one piece for all connections; empty again when the callback that brought the bytes returns
    own memory  of one connection, while a frame is unfinished or its reads are large

Law: own memory of all connections together stays below a limit. Above it, in this order, until enough is free:

    1. memory that no byte needs is released
    2. connections before the end of their handshake are ended, the oldest first
    3. connections whose frame has been unfinished for STALE_NS are ended, the oldest first
    4. the connection that asks for more is ended

A connection that asks for more before the end of its own handshake ends those of step 2 that are stale, and none of step 3.
Connections without a producer have a limit of their own, a small one. Above it the same steps are taken among them alone.
So peers without credentials end none that have proven theirs, peers that send half frames lose their connections, a
producer that sends whole ones keeps its own, and frames that have begun earlier are completed. Pure: no I/O, and the
clock is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

SCRATCH_BYTES: Final = 16 * 1024
"""Largest read that goes into the scratch. An entry received there is copied out, which costs less than 1 µs."""
UNLIMITED: Final = 1 << 62
IDLE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Own memory of all connections without a producer together: a dozen of the longest frames, or thousands of usual reads."""
STALE_NS: Final = 10 * 10**9
"""Age of an unfinished frame from which it is ended when others need its memory: 5 MiB at 4 Mbit/s."""


class MemoryOwner(Protocol):
    """A receive buffer that has memory of its own."""

    @property
    def accepted(self) -> bool:
        """True once the peer has completed the handshake, with its credentials where they are asked for."""
        ...

    @property
    def produces(self) -> bool:
        """True once the peer has opened a producer: its memory counts against the large limit alone."""
        ...

    def release(self) -> bool:
        """Releases the memory if no byte in it is needed. Returns False otherwise."""
        ...

    def give_up(self) -> bool:
        """Ends the connection and releases its memory. Returns False while the broker itself does not read it."""
        ...


class ReceiveMemory:
    """The scratch, and the account of all own memory."""

    def __init__(self, bytes_max: int = UNLIMITED, now_ns: Callable[[], int] = lambda: 0) -> None:
        """`bytes_max`: own memory of all connections together; it must hold several frames."""
        self.scratch = bytearray(SCRATCH_BYTES)
        """The bytes of the read that is being handled."""
        self.view = memoryview(self.scratch)
        """A view of `scratch`, for slices without a copy."""
        self.used_bytes = 0
        """Bytes of own memory."""
        self.idle_bytes = 0
        """Those of connections without a producer."""
        self._bytes_max = bytes_max
        self._now_ns = now_ns
        # By owner: when it completed a frame last, or took memory first. The dict's order is that of these times.
        self._owners: dict[MemoryOwner, int] = {}

    def resize(self, bytes_max: int) -> None:
        """Sets a new limit, which acts when memory is taken next."""
        self._bytes_max = bytes_max

    def take(self, owner: MemoryOwner, size: int) -> None:
        """Adds own memory of one connection; a negative size is a smaller piece in place of a larger one."""
        self.used_bytes += size
        if owner not in self._owners:
            self._owners[owner] = self._now_ns()
        if not owner.produces:
            self.idle_bytes += size
            idle_max = min(IDLE_BYTES_MAX, self._bytes_max)
            if self.idle_bytes > idle_max:
                idle = [one for one in self._owners if not one.produces]
                self._make_room(owner, idle, lambda: self.idle_bytes <= idle_max)
        if self.used_bytes > self._bytes_max:
            self._make_room(owner, list(self._owners), lambda: self.used_bytes <= self._bytes_max)

    def give_back(self, owner: MemoryOwner, size: int) -> None:
        """Subtracts all own memory of one connection."""
        self.used_bytes -= size
        if not owner.produces:
            self.idle_bytes -= size
        self._owners.pop(owner, None)

    def began_to_produce(self, size: int) -> None:
        """Moves all own memory of one connection, whose `produces` was False until now, out of the small account."""
        self.idle_bytes -= size

    def completed(self, owner: MemoryOwner) -> None:
        """Notes that an owner has completed a frame: it gives its memory up after the others."""
        del self._owners[owner]
        self._owners[owner] = self._now_ns()

    def _make_room(
        self, taker: MemoryOwner, owners: Sequence[MemoryOwner], is_enough: Callable[[], bool]
    ) -> None:
        for owner in owners:
            if is_enough():
                return
            if owner is not taker:
                owner.release()
        stale_before_ns = self._now_ns() - STALE_NS
        # Those that have released their memory are no longer owners.
        since_ns = [(owner, self._owners[owner]) for owner in owners if owner in self._owners]
        stale = [owner for owner, at_ns in since_ns if at_ns <= stale_before_ns]
        if taker.accepted:
            ended = [owner for owner, _ in since_ns if not owner.accepted]
            ended += [owner for owner in stale if owner.accepted]
        else:
            ended = [owner for owner in stale if not owner.accepted]
        for owner in ended:
            if is_enough():
                return
            owner.give_up()
        if not is_enough() and taker in self._owners:
            taker.give_up()
