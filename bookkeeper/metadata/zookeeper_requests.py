"""ZookeeperRequests: requests to ZooKeeper as futures on the event loop, asked again until they are answered.

The law: a request that was out when the connection broke may have been carried out. `Answer.asked` tells the caller how
often it was asked, and the caller must look whether the node is already as wanted (`zookeeper_writes`).

Requests wait while ZooKeeper is away: what the broker has open goes on without it. Listeners are told when
the session ends and comes back, because ephemeral nodes end with it. Nothing here blocks the loop: kazoo answers in threads
of its own, and each answer is passed to the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError, SessionExpiredError

from bookkeeper.metadata.metadata_store import SessionState
from foundation.model.errors import MetadataError, MetadataUnanswered
from foundation.zookeeper.errors import ZookeeperError
from foundation.zookeeper.session import ZookeeperSession
from foundation.zookeeper.tls import ZookeeperTls
from foundation.zookeeper.url import ZookeeperUrl

log = logging.getLogger(__name__)

_RETRY_S = 0.05
"""Between two attempts at a request, so that a flapping connection does not spin."""


class Pending(Protocol):
    """kazoo's object for a request that is out (its IAsyncResult)."""

    @property
    def exception(self) -> BaseException | None:
        """Why the request failed; None for success, and until it is answered."""
        ...

    def get_nowait(self) -> object:
        """Returns the answer, which must be there."""
        ...

    def rawlink(self, callback: Callable[[Pending], object]) -> None:
        """Calls `callback` in a thread of kazoo's when the request is answered."""
        ...


class ZookeeperAnswer(NamedTuple):
    """ZooKeeper's answer to a request."""

    value: object
    """None when there is a refusal."""
    refusal: KazooException | None
    """Why ZooKeeper did not do it."""
    asked: int
    """1, or more when a connection broke in between; an earlier attempt may then have been carried out."""

    def refused(self, reason: type[KazooException]) -> bool:
        """Returns True for a refusal of that kind."""
        return isinstance(self.refusal, reason)

    def value_or_raise(self) -> object:
        """Returns the value. Raises MetadataError for a refusal, after the caller has handled those it expects."""
        if self.refusal is not None:
            raise MetadataError(f"ZooKeeper refused: {type(self.refusal).__name__} {self.refusal}")
        return self.value


class ZookeeperRequests:
    """The loop's side of one ZooKeeper session, and its listener."""

    def __init__(self, session: ZookeeperSession) -> None:
        """Called by `connect` alone; belongs to the running loop."""
        self.session = session
        """Replaces itself when ZooKeeper expires it; `close` ends it."""
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._connected.set()
        self._closed = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self.session_id = session.id
        """Of the session that the listeners know of."""

    @classmethod
    async def connect(
        cls, url: ZookeeperUrl, timeout_s: float, tls: ZookeeperTls | None = None
    ) -> ZookeeperRequests:
        """Returns a new session whose root exists. Raises MetadataError when no ZooKeeper answers.

        `timeout_s` is the session's, and how long to wait for ZooKeeper.
        """

        def open_session() -> ZookeeperSession:
            session = ZookeeperSession.connect(url, timeout_s, tls=tls)
            try:
                if url.root:
                    session.nodes.ensure(url.root)
            except ZookeeperError:
                session.close()
                raise
            return session

        try:
            requests = cls(await asyncio.to_thread(open_session))
        except ZookeeperError as error:
            raise MetadataError(str(error)) from error
        requests.session.listen(requests)
        log.info("metadata is kept in ZooKeeper at %s", url)
        return requests

    @property
    def client(self) -> KazooClient:
        """kazoo's client, whose `…_async` calls make the requests for `ask`."""
        return self.session.client

    @property
    def url(self) -> ZookeeperUrl:
        """The servers and the root of the broker's nodes."""
        return self.session.url

    async def ask(self, request: Callable[[], Pending], *, session_id: int | None = None) -> ZookeeperAnswer:
        """Returns ZooKeeper's answer to `request`, which is called once per attempt.

        Waits while ZooKeeper is away. Raises MetadataError after `close`, and once the session with `session_id` has
        ended.
        """
        asked = 0
        while True:
            await self._connected.wait()
            if self._closed:
                raise MetadataError("the metadata store is closed")
            if session_id not in (None, self.session.id):
                raise MetadataUnanswered(
                    "the session with ZooKeeper has ended, in which this was asked; it was perhaps done"
                )
            # Counted before the request: an attempt whose answer is lost may have been carried out.
            asked += 1
            try:
                return ZookeeperAnswer(await self._answer_of(request()), None, asked)
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError):
                await asyncio.sleep(_RETRY_S)
            except KazooException as refusal:
                return ZookeeperAnswer(None, refusal, asked)

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Calls `told` on the loop at each news of the session, from now on."""
        self._listeners.append(told)

    async def close(self) -> None:
        """Ends the session. Requests that wait for ZooKeeper raise MetadataError."""
        self._closed = True
        self._connected.set()
        await asyncio.to_thread(self.session.close)

    def _answer_of(self, pending: Pending) -> asyncio.Future[object]:
        future: asyncio.Future[object] = self._loop.create_future()
        # kazoo keeps the callback with its object, so it must not refer to that: each request would leave a cycle, and
        # freeing 50,000 of their objects takes the collector 60 ms.
        pending.rawlink(lambda answered: self._loop.call_soon_threadsafe(_settle, future, answered))
        return future

    # The session's listener, in kazoo's threads.

    def connected(self, *, new_session: bool) -> None:
        """Sends the requests that wait."""
        self._on_loop(self._resume, SessionState.RE_ESTABLISHED if new_session else SessionState.CONNECTED)

    def disconnected(self) -> None:
        """Holds new requests back."""
        self._on_loop(
            self._pause,
            SessionState.SUSPENDED,
            f"ZooKeeper at {self.url.hosts} does not answer: what is open goes on, what needs metadata waits",
        )

    def expired(self) -> None:
        """Holds new requests back until the next session."""
        self._on_loop(
            self._pause,
            SessionState.LOST,
            "the session with ZooKeeper has expired, with the leases in it; a new one is opened",
        )

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        # The loop may be closed as soon as `close` has begun, and a call into a closed loop raises.
        if not self._closed:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _resume(self, state: SessionState) -> None:
        if self._closed:
            return
        self._connected.set()
        self.session_id = self.session.id
        how = "in a new session" if state is SessionState.RE_ESTABLISHED else "in the same session"
        log.info("ZooKeeper at %s answers again, %s", self.url.hosts, how)
        self._tell(state)

    def _pause(self, state: SessionState, why: str) -> None:
        # After `close` the event must stay set, or waiting requests would never learn that they are refused.
        if not self._closed:
            self._connected.clear()
            log.warning("%s", why)
            self._tell(state)

    def _tell(self, state: SessionState) -> None:
        for told in self._listeners:
            told(state)


def _settle(future: asyncio.Future[object], answered: Pending) -> None:
    if future.done():  # The caller was cancelled.
        return
    if answered.exception is not None:
        future.set_exception(answered.exception)
    else:
        future.set_result(answered.get_nowait())
