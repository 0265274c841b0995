"""Hub: the sampling of the broker, and the streams of open pages.

Samples of ten seconds are always taken, because the hour before somebody opens the page is the hour that he asks about.
Samples of one second are taken while a page is open. A stream holds no queue: it remembers what it has sent, and looks
for newer things when the hub wakes it. So a slow reader costs no memory, and one that takes nothing for a while is dropped.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from broker.console.log_warnings import LogWarnings
from broker.console.samples import History, Interval, Reading
from foundation.model.errors import BrokerError
from foundation.value import Json

log = logging.getLogger("magnetar")

STREAMS_MAX: Final = 32
"""Streams that are open at the same time; further ones are refused with 503."""
NARROW_STREAMS_MAX: Final = 16
"""Those of them that show single topics to roles without a view of the broker, so that such roles lock nobody out."""
SECOND_S: Final = 1.0
"""Seconds between two samples while a page is open."""
TEN_S: Final = 10.0
"""Seconds between two samples of the hour."""

ReadTopic = Callable[[], dict[str, Json]]
"""Returns the event `topic` of one stream."""


class TooManyStreams(BrokerError):
    """The number of open pages has reached its limit."""

    status = 503


class Hub:
    """Samples one broker and feeds its streams."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Reading]],
        warnings: LogWarnings,
        upkeep: Callable[[], None] = lambda: None,
    ) -> None:
        """Samples nothing before `run`, which calls `upkeep` every ten seconds. `read` makes a reading of the broker."""
        self.history = History()
        """The last hour."""
        self.warnings = warnings
        """The log's last warnings."""
        self.last: dict[str, Json] = {}
        """The newest sample; {} before the first one."""
        self.closed = False
        """True once the broker stops: all streams end."""
        self._read = read
        self._upkeep = upkeep
        self._seconds = Interval()
        self._tens = Interval()
        self._streams: set[Stream] = set()
        self._opened = asyncio.Event()
        self._ten_due_s = 0.0
        self._failing = False

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    async def run(self) -> None:
        """Samples until cancelled; a sample that fails is left out, and the first of several in a row is logged."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self._sample(clock)
            except Exception:
                # A defect in a look at one topic must not end the pages of all: the task is never started again.
                if not self._failing:
                    log.exception("! the console cannot sample the broker, tried again at the next tick")
                self._failing = True
                # Never at once: the sample that failed may have been due already.
                await self._pause(TEN_S)
            else:
                self._failing = False
                await self._pause(self._ten_due_s - clock())

    async def _sample(self, clock: Callable[[], float]) -> None:
        """Takes one sample and gives it to the open pages."""
        reading = await self._read()
        now_s = clock()
        if now_s >= self._ten_due_s:
            # By the time it was due, or each round would lose a little; by now after the first round and a pause.
            due_s = self._ten_due_s if now_s - self._ten_due_s < TEN_S else now_s
            self._ten_due_s = due_s + TEN_S
            self.history.add_ten(self._tens.sample(reading))
            self._upkeep()
        sample = self._seconds.sample(reading)
        self.last = sample
        if self._streams:
            self.history.add_second(sample)
            text = event("overview", {**sample, "ten": self.history.newest_ten})
            for stream in self._streams:
                stream.overview = text
                stream.wake.set()

    async def _pause(self, ten_s: float) -> None:
        """Waits a second while a page is open, else until one opens or the next sample of ten seconds is due."""
        if self._streams:
            await asyncio.sleep(SECOND_S)
            return
        self._opened.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(ten_s):
                await self._opened.wait()

    def open(self, topic: ReadTopic | None, *, whole: bool = True) -> Stream:
        """Returns a new stream; `whole`: with the events of the whole broker. Raises TooManyStreams."""
        if self.closed or len(self._streams) >= STREAMS_MAX:
            raise TooManyStreams(f"{STREAMS_MAX} pages of the console are open: close one")
        if not whole and sum([not one.whole for one in self._streams]) >= NARROW_STREAMS_MAX:
            raise TooManyStreams(f"{NARROW_STREAMS_MAX} pages show single topics: close one")
        stream = Stream(self, topic, whole=whole)
        self._streams.add(stream)
        self._opened.set()
        return stream

    def leave(self, stream: Stream) -> None:
        """Forgets a stream."""
        self._streams.discard(stream)

    def close(self) -> None:
        """Ends all streams."""
        self.closed = True
        for stream in self._streams:
            stream.wake.set()


class Stream:
    """The events of one page."""

    def __init__(self, hub: Hub, topic: ReadTopic | None, *, whole: bool) -> None:
        """Made by `Hub.open`; `topic` reads the topic that the page shows."""
        self.wake = asyncio.Event()
        """Set when there is something new."""
        self.overview = b""
        """The newest event `overview` that was not sent."""
        self._hub = hub
        self.whole = whole
        """Sends the events of the whole broker too."""
        self._topic = topic
        self._warned = 0

    async def events(self) -> AsyncIterator[bytes]:
        """Yields what is to be sent, until the broker stops. The caller must `Hub.leave` the stream."""
        hub = self._hub
        if self.whole:
            yield event("history", hub.history.shown()) + self._warnings()
        while True:
            await self.wake.wait()
            self.wake.clear()
            if hub.closed:
                return
            overview, self.overview = self.overview, b""
            topic = b"" if self._topic is None else event("topic", self._topic())
            yield (overview + self._warnings() if self.whole else b"") + topic

    def _warnings(self) -> bytes:
        """Returns the warnings that the page has not got."""
        lines = self._hub.warnings.after(self._warned)
        if lines:
            self._warned = int(str(lines[-1]["number"]))
        return b"".join([event("warning", line) for line in lines])


def event(name: str, data: Json) -> bytes:
    """Returns a server-sent event; JSON has no line breaks, so one line of data is enough."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
