"""Pressure: queues, deadlines and a rate for the requests of the admin port.

    rate       httpRequestsLimitEnabled, httpRequestsMaxPerSecond      429
    queues     two per class of `request_classes.py`, bounded           503
    pacing     one request begins per turn of the loop, and one per     messages flow between two requests
               BUSY_PAUSE_S while the loop is busy
    deadline   magnetarHttpRequestTimeoutSeconds, from the arrival      504

A read that is too late is cancelled. A write never is, because half a write is worse than a late one: the answer says
that it goes on, it keeps its place in the queue, and one log line tells the outcome.

A request that asks other brokers, or its own one over HTTP, first moves to the second queue of its class. Its parts run in
the first queue of their class, at those brokers, and ask nobody. So no request waits for a place that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.request_classes import CLASSES, RequestClass, class_of
from broker.admin.http.request_path import shown_path, template_of
from broker.config.fields import broker_key
from broker.service.limits.token_bucket import TokenBucket
from foundation.loop.rare_lines import RareLines
from foundation.model.errors import BrokerError, TooManyRequests
from foundation.settings.fields import RoomSettings
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

LAST_WRITES_S: Final = 2.0
"""Time for writes beyond their deadline when the server stops."""


_ENDS_S: Final = web.RequestKey("ends_s", float)
"""The deadline of a request on the loop's clock."""
BUSY_PAUSE_S: Final = 0.003
"""Time between the begins of two requests while the loop is busy. A small one takes about a tenth of it."""
BUSY_SHARE: Final = 0.25
"""Share of a processor from which on the loop counts as busy."""
BUSY_WINDOW_NS: Final = 100_000_000
"""Time over which that share is measured."""


class RequestTimedOut(BrokerError):
    """The request was not finished before its deadline."""

    status = 504


class QueueFull(BrokerError):
    """Too many requests of the class wait already."""

    status = 503


class PressureSettings(RoomSettings):
    """Limits of requests at the admin port."""

    requests_max: int = broker_key.int("maxConcurrentHttpRequests")
    rate_limited: bool = broker_key.bool("httpRequestsLimitEnabled")
    per_second: float = broker_key.float("httpRequestsMaxPerSecond")
    deadline_s: float = broker_key.float("magnetarHttpRequestTimeoutSeconds")


class Pressure:
    """The queues of one admin port."""

    def __init__(self, settings: PressureSettings, now_ns: Callable[[], int]) -> None:
        """`now_ns` is the monotonic clock."""
        self._settings = settings
        self._now_ns = now_ns
        self._pacer = _Pacer()
        most = settings.requests_max
        self._queues = {kind: _Queue(kind.running_max, most, self._pacer, kind.paced) for kind in CLASSES}
        # Not paced: these requests wait, and the parts are paced where they run.
        self._asking = {kind: _Queue(kind.asking_max, most, self._pacer, paced=False) for kind in CLASSES}
        self._lines = RareLines(log, now_ns)
        self._late_writes: set[asyncio.Task[web.StreamResponse]] = set()
        whole = math.ceil(settings.per_second)
        # A second's worth at once, as in Pulsar; the period makes up for the fraction that `whole` adds.
        self._rate = TokenBucket(whole, int(NS_PER_SECOND * whole / settings.per_second), now_ns())

    @property
    def waiting(self) -> Mapping[str, int]:
        """Requests that wait, by the name of their class."""
        return {
            kind.name: len(self._queues[kind].waiting) + len(self._asking[kind].waiting) for kind in CLASSES
        }

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Runs the handler when its class has a place; a middleware.

        Raises TooManyRequests, QueueFull or RequestTimedOut, of which nothing was begun but in the last case.
        """
        if self._settings.rate_limited:
            self._count()
        template = template_of(request)
        kind = class_of(request.method, request.path if template is None else template)
        if kind is None:
            return await handler(request)
        return await self._run(kind, request, handler)

    @asynccontextmanager
    async def in_time(self, request: web.Request) -> AsyncIterator[None]:
        """Ends a read of the metadata store that comes before `guard` at the request's deadline.

        Raises RequestTimedOut, in which case nothing was begun.
        """
        try:
            async with asyncio.timeout_at(self.deadline_of(request)) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimedOut(
                f"The metadata store did not answer within {self._settings.deadline_s:g} s: nothing was begun"
            ) from None

    def deadline_of(self, request: web.Request) -> float:
        """Returns the end of the request's time, which begins with the first call."""
        if _ENDS_S not in request:
            request[_ENDS_S] = asyncio.get_running_loop().time() + self._settings.deadline_s
        return request[_ENDS_S]

    async def close(self, _: web.Application | None = None) -> None:
        """Waits a moment for writes beyond their deadline, then ends them; each that is cut is logged."""
        if self._late_writes:
            _ended, cut = await asyncio.wait(self._late_writes, timeout=LAST_WRITES_S)
            for task in cut:
                task.cancel()
            if cut:
                await asyncio.wait(cut)

    def _count(self) -> None:
        now_ns = self._now_ns()
        if self._rate.available(now_ns) <= 0:
            self._lines.warning(
                f"- HTTP request refused: more than httpRequestsMaxPerSecond={self._settings.per_second:g}"
            )
            raise TooManyRequests("Too Many Requests")
        self._rate.take(1, now_ns)

    async def _run(self, kind: RequestClass, request: web.Request, handler: Handler) -> web.StreamResponse:
        queue = self._queues[kind]
        self._check_room(kind, queue, request)
        deadline_s = self._settings.deadline_s
        begun: asyncio.Task[web.StreamResponse] | None = None
        try:
            async with asyncio.timeout_at(self.deadline_of(request) if kind.has_deadline else None) as limit:
                await queue.enter()
                check = partial(self._check_room, kind, self._asking[kind], request)
                place = request[_PLACE] = _Place(queue, self._asking[kind], check)
                if not kind.changes:
                    return await _handled(place, request, handler)
                begun = asyncio.create_task(_handled(place, request, handler), name=_name(request))
                # Shielded: half of a change, of which nothing tells, is worse than a late one.
                return await asyncio.shield(begun)
        except TimeoutError:
            if not limit.expired():
                raise
            if not kind.changes:
                raise RequestTimedOut(f"Not finished within {deadline_s:g} s") from None
            if begun is None or request[_PLACE].waits:
                if begun is not None:
                    begun.cancel()
                raise RequestTimedOut(
                    f"Waited {deadline_s:g} s in the queue and was not begun: nothing was changed"
                ) from None
            self._watch(begun)
            raise RequestTimedOut(
                f"Not finished within {deadline_s:g} s: the change goes on, and the broker's log tells its outcome"
            ) from None
        except asyncio.CancelledError:
            if begun is not None:
                # The server stops, or the client is gone and asked for its handler's end.
                self._watch(begun)
            raise

    def _check_room(self, kind: RequestClass, queue: _Queue, request: web.Request) -> None:
        """Raises QueueFull where no further request of the class may wait."""
        if queue.full:
            text = (
                f"{self._settings.requests_max} {kind.name} requests run or wait (maxConcurrentHttpRequests)"
            )
            self._lines.warning(f"- {request.method} {shown_path(request)} refused: {text}")
            raise QueueFull(f"{text}; try again later")

    def _watch(self, write: asyncio.Task[web.StreamResponse]) -> None:
        self._late_writes.add(write)
        write.add_done_callback(self._written)

    def _written(self, write: asyncio.Task[web.StreamResponse]) -> None:
        self._late_writes.discard(write)
        name = write.get_name()
        if write.cancelled():
            log.error("! %s was ended by the stop of the broker before it was finished", name)
            return
        error = write.exception()
        if error is None:
            log.warning("! %s ended after its deadline: %d", name, write.result().status)
        elif isinstance(error, BrokerError | web.HTTPException):
            log.warning("! %s failed after its deadline: %s", name, error)
        else:
            log.error("! %s failed after its deadline", name, exc_info=error)


async def before_asking_others(request: web.Request) -> None:
    """Gives up the place of a request that is about to ask brokers, once it has one among those that do.

    Called before anything is changed, by requests that are no part of another one. Raises QueueFull.
    """
    place = request.get(_PLACE)
    if place is not None:
        await place.move()


async def _handled(place: _Place, request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    finally:
        place.leave()


def _name(request: web.Request) -> str:
    return f"{request.method} {shown_path(request)}"


class _Place:
    """The place of a running request."""

    def __init__(self, queue: _Queue, asking: _Queue, check_room: Callable[[], None]) -> None:
        """The request has entered `queue`; `asking` is that of requests which ask brokers, with its check."""
        self.waits = False
        """True while the request has no place yet among those that ask: it has changed nothing."""
        self._queue: _Queue | None = queue
        self._asking = asking
        self._check_room = check_room

    async def move(self) -> None:
        """Leaves the queue for that of requests which ask; the second time it does nothing. Raises QueueFull."""
        if self._queue is self._asking:
            return
        self._check_room()
        # First: a place that is kept meanwhile could be the one that the request waits for.
        self.leave()
        self.waits = True
        await self._asking.enter()
        self.waits = False
        self._queue = self._asking

    def leave(self) -> None:
        """Frees the place."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.leave()


_PLACE: Final = web.RequestKey("place", _Place)
"""The place of a request that runs; missing before that, and for one without a class."""


class _Queue:
    """The requests of one class: some run, the others wait in the order of their arrival."""

    def __init__(self, running_max: int, requests_max: int, pacer: _Pacer, paced: bool) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._running_max = running_max
        self._paced = paced
        self._requests_max = requests_max
        self._pacer = pacer
        self._running = 0
        pacer.add(self)

    @property
    def full(self) -> bool:
        """True when a further request must be refused."""
        return self._running + len(self.waiting) >= self._requests_max

    @property
    def may_start(self) -> bool:
        """True when a request waits and a place is free."""
        return self._running < self._running_max and self._next() is not None

    async def enter(self) -> None:
        """Returns when the request may run; it must `leave` then. Cancelled, it has not entered."""
        if not self._paced and self._running < self._running_max:
            self._running += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        self._pacer.wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self.waiting.remove(place)
            else:  # It was let in during the turn in which it was cancelled.
                self.leave()
            raise

    def leave(self) -> None:
        """Frees the place of a request."""
        self._running -= 1
        if self.waiting:
            self._pacer.wake()

    def start_next(self) -> None:
        """Lets the first request in that waits; only where `may_start`."""
        place = self._next()
        assert place is not None, "may_start"
        self.waiting.remove(place)
        self._running += 1
        place.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        # A place whose deadline has passed in this turn stays until its request's task runs.
        return next((place for place in self.waiting if not place.done()), None)


class _Pacer:
    """Lets waiting requests in one by one, the classes in turns."""

    def __init__(self) -> None:
        self._queues: deque[_Queue] = deque()
        self._scheduled = False
        self._load = _Load()

    def add(self, queue: _Queue) -> None:
        """Serves one more queue."""
        self._queues.append(queue)

    def wake(self) -> None:
        """Looks at the queues in the next turn; further calls before it change nothing."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start_one)

    def _start_one(self) -> None:
        self._scheduled = False
        for _ in range(len(self._queues)):
            queue = self._queues[0]
            self._queues.rotate(-1)
            if queue.may_start:
                queue.start_next()
                # Also where no other request waits: the next one may arrive at once.
                self._scheduled = True
                pause_s = BUSY_PAUSE_S if self._load.is_busy() else 0
                asyncio.get_running_loop().call_later(pause_s, self._start_one)
                return


class _Load:
    """Tells whether the loop's thread has been busy, by the processor time that it took."""

    def __init__(self) -> None:
        self._since_ns = time.monotonic_ns()
        self._used_ns = 0
        self._busy = False

    def is_busy(self) -> bool:
        """Returns the result of the last whole window; to be called on the loop."""
        now_ns = time.monotonic_ns()
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= BUSY_WINDOW_NS:
            used_ns = time.thread_time_ns()
            self._busy = used_ns - self._used_ns > BUSY_SHARE * elapsed_ns
            self._since_ns, self._used_ns = now_ns, used_ns
        return self._busy
