"""Long polls: v3 reads that wait until the ledger's LAC rises.

They carry previousLAC, and wait at most timeOut milliseconds.

Invariant: a long poll is answered at most once. With ENTRY_PIGGYBACK the answer is the entry previousLAC + 1. It is
the LAC alone when the LAC has not risen (time is up, or the ledger was fenced), or when this bookie does not have
that entry. Without the flag the answer is the requested entry. Only a poll that was woken answers with the time at
which the LAC rose.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bookie_stub.wire.peer import Peer
from protocol.bookie_frame import LAST_ENTRY, RC_BAD_REQUEST, RC_NO_ENTRY, RC_OK
from protocol.bookie_frame_v3 import answer_to, encode_message
from protocol.bookkeeper_api_pb2 import ReadRequest, Request, Response

WAIT_MS_MAX: Final = 24 * 3600 * 1000
"""A longer timeOut is cut to this; the client then asks again."""


class LongPoll:
    """One waiting read of one connection."""

    def __init__(self, request: Request, peer: Peer, ended: Callable[[LongPoll], None]) -> None:
        """`ended` is called when the poll is answered."""
        self._request = request
        self._asked = request.readRequest
        self._peer = peer
        self._bookie = peer.bookie
        self._ended = ended
        self._piggyback = self._asked.HasField("flag") and self._asked.flag == ReadRequest.ENTRY_PIGGYBACK
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._end_watch: Callable[[], object] | None = None
        self._cancelled = False
        self._moved_ms = 0
        """Wall clock, in milliseconds, at which the poll was woken; 0 before."""

    def start(self) -> None:
        """Answers at once, or begins to wait."""
        if self._piggyback and self._asked.entryId != LAST_ENTRY:
            self._send(answer_to(self._request, RC_BAD_REQUEST))
        else:
            self._bookie.last_confirmed.find(self._asked.ledgerId, self._wait_or_read)

    def cancel(self) -> None:
        """Ends the wait without an answer: the connection is closed."""
        self._cancelled = True
        self._stop_waiting()

    def _wait_or_read(self, rc: int, lac: int) -> None:
        if self._cancelled:
            return
        wait_ms = min(self._asked.timeOut, WAIT_MS_MAX)
        if rc != RC_OK or lac > self._asked.previousLAC or wait_ms <= 0:
            self._read(rc, lac)
            return
        self._end_watch = self._bookie.last_confirmed.watch(
            self._asked.ledgerId, self._asked.previousLAC, self._woken
        )
        self._timer = self._loop.call_later(wait_ms / 1000, self._look_again)

    def _woken(self) -> None:
        """Notes that the poll was woken; runs inside that add or fence.

        The poll's answer is sent before that add's: the LAC in an entry speaks of the entries before it."""
        self._moved_ms = time.time_ns() // 1_000_000
        self._stop_waiting()
        # Not at once: the add or fence that woke the poll has not returned yet.
        self._loop.call_soon(self._look_again)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The ledger holds the watch; one that is not ended would keep its adds on the checked path.
        if self._end_watch is not None:
            self._end_watch()

    def _look_again(self) -> None:
        self._stop_waiting()
        self._peer.when_unblocked(lambda: self._bookie.last_confirmed.find(self._asked.ledgerId, self._read))

    def _read(self, rc: int, lac: int) -> None:
        if self._cancelled:
            return
        if rc != RC_OK:
            self._send(answer_to(self._request, rc))
        elif not self._piggyback:
            self._begin_read(self._asked.entryId, lac)
        elif lac > self._asked.previousLAC:
            self._begin_read(self._asked.previousLAC + 1, lac)
        else:
            self._send(self._lac_alone(lac))

    def _begin_read(self, entry_id: int, lac: int) -> None:
        self._peer.begin_read()
        self._bookie.reads.read(self._asked.ledgerId, entry_id, partial(self._read_done, entry_id, lac))

    def _read_done(self, entry_id: int, lac: int, rc: int, entry: bytes) -> None:
        # A ledger with E > Qw: another bookie has the entry, and the LAC tells the client to ask there.
        elsewhere = rc == RC_NO_ENTRY and self._piggyback
        answer = self._lac_alone(lac) if elsewhere else answer_to(self._request, rc)
        if rc == RC_OK:
            part = answer.readResponse
            part.entryId, part.body, part.maxLAC = entry_id, entry, lac
            if self._piggyback and self._moved_ms:
                part.lacUpdateTimestamp = self._moved_ms
        self._ended(self)
        self._peer.end_read(encode_message(answer))

    def _lac_alone(self, lac: int) -> Response:
        answer = answer_to(self._request, RC_OK)
        answer.readResponse.maxLAC = lac
        return answer

    def _send(self, answer: Response) -> None:
        self._ended(self)
        self._peer.send(encode_message(answer))
