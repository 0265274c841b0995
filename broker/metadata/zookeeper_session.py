"""A session with ZooKeeper for the loop: requests as futures, asked again until they are answered.

`kazoo` has threads of its own and calls back in them; nothing here blocks the loop. A request that was out when the
connection broke may have been carried out, so whoever asks learns how often it was asked (`Answer.asked`) and sorts
that out. While ZooKeeper is away requests wait: what the broker has open goes on without it. A session that has
expired is replaced by a new one; the broker keeps nothing in it, so that costs nothing but the wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from broker.metadata.metadata_url import ZookeeperUrl
from broker.model.errors import MetadataError

log = logging.getLogger(__name__)

RETRY_S = 0.05
"""Between two attempts at a request, so that a flapping connection does not spin."""
_RECONNECT = {"max_tries": -1, "delay": 0.1, "max_delay": 2.0}
"""Seconds between two attempts to reach ZooKeeper, for as long as it takes."""


class Pending(Protocol):
    """What kazoo hands out for a request."""

    @property
    def exception(self) -> BaseException | None: ...

    def get_nowait(self) -> object: ...

    def rawlink(self, callback: Callable[[Pending], object]) -> None: ...


class Answer(NamedTuple):
    value: object
    refusal: KazooException | None
    """Why ZooKeeper did not do it; then there is no value."""
    asked: int
    """1, or more when a connection broke in between."""

    def refused(self, reason: type[KazooException]) -> bool:
        return isinstance(self.refusal, reason)

    def value_or_raise(self) -> object:
        """MetadataError for a refusal that the caller has no answer to."""
        if self.refusal is not None:
            raise MetadataError(f"ZooKeeper refused: {type(self.refusal).__name__} {self.refusal}")
        return self.value


class ZookeeperSession:
    def __init__(self, client: KazooClient, url: ZookeeperUrl) -> None:
        """Use `connect`."""
        self.client = client
        self.url = url
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._connected.set()
        self._closed = False
        self._session_id = client.client_id[0]

    @classmethod
    async def connect(cls, url: ZookeeperUrl, timeout_s: float) -> ZookeeperSession:
        """`timeout_s` is the session's, and how long to wait for ZooKeeper. MetadataError when it is not there."""
        client = KazooClient(hosts=url.hosts, timeout=timeout_s, connection_retry=_RECONNECT)

        def start() -> None:
            client.start(timeout=timeout_s)
            if url.root:
                client.ensure_path(url.root)

        try:
            await asyncio.to_thread(start)
        except (KazooException, KazooTimeoutError) as error:
            await asyncio.to_thread(_stop, client)
            raise MetadataError(
                f"no ZooKeeper at {url.hosts} within {timeout_s:g} s ({type(error).__name__} {error})"
            ) from error
        session = cls(client, url)
        client.add_listener(session._state_changed)
        log.info("metadata is kept in ZooKeeper at %s", url)
        return session

    async def ask(self, request: Callable[[], Pending]) -> Answer:
        """What ZooKeeper answers, however long it takes. MetadataError after `close`."""
        asked = 0
        while True:
            await self._connected.wait()
            if self._closed:
                raise MetadataError("the metadata store is closed")
            asked += 1
            try:
                return Answer(await self._answer_of(request()), None, asked)
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError):
                await asyncio.sleep(RETRY_S)
            except KazooException as refusal:
                return Answer(None, refusal, asked)

    async def close(self) -> None:
        self._closed = True
        self._connected.set()
        await asyncio.to_thread(_stop, self.client)

    def _answer_of(self, pending: Pending) -> asyncio.Future[object]:
        future: asyncio.Future[object] = self._loop.create_future()

        def settle() -> None:
            if future.done():  # Nobody waits any more.
                return
            if pending.exception is not None:
                future.set_exception(pending.exception)
            else:
                future.set_result(pending.get_nowait())

        pending.rawlink(lambda _: self._loop.call_soon_threadsafe(settle))
        return future

    def _state_changed(self, state: str) -> None:
        """In a thread of kazoo's."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._take_state, state)

    def _take_state(self, state: str) -> None:
        if self._closed:
            return
        if state == "CONNECTED":
            self._take_connection()
        elif state == "LOST":
            self._connected.clear()
            log.warning(
                "the session with ZooKeeper has expired; a new one is opened, nothing was kept in the old one"
            )
        else:
            self._connected.clear()
            log.warning(
                "ZooKeeper at %s does not answer: what is open goes on, what needs metadata waits",
                self.url.hosts,
            )

    def _take_connection(self) -> None:
        session_id = self.client.client_id[0]
        how = "in the same session" if session_id == self._session_id else "in a new session"
        self._session_id = session_id
        self._connected.set()
        log.info("ZooKeeper at %s answers again, %s", self.url.hosts, how)


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()
