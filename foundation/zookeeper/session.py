"""ZookeeperSession: a connection that is kept up, and ZooKeeper's session.

The laws of a session, as ZooKeeper has them:

1. A session outlives a broken connection for its timeout. kazoo reconnects for ever; the same session goes on.
2. A session that was not renewed in time has expired, with every ephemeral node and watch in it. kazoo then opens a
   new session, and its owner must make again what it had in the old one.
3. A request that was out when the connection broke may have been carried out.

`bookkeeper/metadata` asks through it from the event loop, `bookie_stub/cluster` and `magnetar/snapshot` through the blocking
calls of `ZookeeperNodes`. kazoo has threads of its own and calls listeners in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from foundation.zookeeper.errors import ZookeeperError
from foundation.zookeeper.nodes import ZookeeperNodes
from foundation.zookeeper.ready_sockets import ready_sockets
from foundation.zookeeper.tls import ZookeeperTls
from foundation.zookeeper.url import ZookeeperUrl
from foundation.zookeeper.wake_pipe import wake_pipe

_RECONNECT = {"max_tries": -1, "delay": 0.1, "max_delay": 2.0}
"""Without end, and seconds between two attempts: a process outlives its ZooKeeper, so giving up would only add a
restart."""


class SessionListener(Protocol):
    """Told of the session's changes, in a thread of kazoo's.

    A call that waits for ZooKeeper there waits for ever: its answer would come in the same thread.
    """

    def connected(self, *, new_session: bool) -> None:
        """Requests are answered again. With `new_session` the old one's ephemeral nodes and watches are gone."""
        ...

    def disconnected(self) -> None:
        """The connection broke; the session may live on."""
        ...

    def expired(self) -> None:
        """The session ended with all that was in it. `connected` follows when a new one is open."""
        ...


class ZookeeperSession:
    """A session from `connect` to `close`. When it expires a new one replaces it."""

    def __init__(self, client: KazooClient, url: ZookeeperUrl) -> None:
        """Called by `connect` alone; `client` is started."""
        self.client = client
        """For requests that answer later; the blocking ones are in `nodes`."""
        self.url = url
        """Servers and chroot; every path of `nodes` is below the chroot."""
        self.nodes = ZookeeperNodes(client)
        """Requests that block until the answer; for threads and starts, never for the loop."""
        # Read now, so that `listen` can tell the first reconnection from a new session.
        self._id: int = client.client_id[0]

    @classmethod
    def connect(
        cls,
        url: ZookeeperUrl,
        timeout_s: float,
        *,
        read_only: bool = False,
        tls: ZookeeperTls | None = None,
    ) -> ZookeeperSession:
        """Blocks until a server answers.

        Raises ZookeeperError after `timeout_s`, which is the session's timeout too.

        `read_only` accepts a server that has lost the others of its cluster and answers reads alone. The files of `tls`
        are read with each connection, so changed ones need no restart.
        """
        handler = SequentialThreadingHandler()
        handler.select = ready_sockets
        handler.create_socket_pair = wake_pipe
        client = KazooClient(
            hosts=url.hosts,
            timeout=timeout_s,
            handler=handler,
            connection_retry=_RECONNECT,
            read_only=read_only,
            **({} if tls is None else _options_of(tls)),
        )
        try:
            client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            # Or threads and sockets of the attempt would stay.
            _stop(client)
            raise ZookeeperError(
                f"no ZooKeeper at {url.hosts} within {timeout_s:g} s ({type(error).__name__} {error})"
            ) from error
        return cls(client, url)

    @property
    def id(self) -> int:
        """ZooKeeper's number of the present session; ephemeral nodes carry their owner's.

        0 between the expiry of a session and the beginning of the next; no session has this number.
        """
        # kazoo forgets the number as soon as it learns of an expiry.
        session = self.client.client_id
        return session[0] if session else 0

    def listen(self, listener: SessionListener) -> None:
        """Tells `listener` of every change from now on."""

        def changed(state: str) -> None:
            if state == "CONNECTED":
                # kazoo reports CONNECTED after an expiry too; only the number tells a new session from the old one.
                before, self._id = self._id, self.id
                listener.connected(new_session=self._id != before)
            elif state == "LOST":
                listener.expired()
            else:
                listener.disconnected()

        self.client.add_listener(changed)

    def spawn(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread where it may wait. A listener uses it to ask ZooKeeper."""
        self.client.handler.spawn(work)

    def close(self) -> None:
        """Ends the session and its ephemeral nodes. Blocks; a second call does nothing."""
        _stop(self.client)


def _options_of(tls: ZookeeperTls) -> dict[str, object]:
    """Returns kazoo's arguments."""
    certificate = None if tls.certificate is None else str(tls.certificate)
    return {
        "use_ssl": True,
        "ca": None if tls.trusted is None else str(tls.trusted),
        "certfile": certificate,
        # kazoo shows no certificate unless both names are given.
        "keyfile": certificate,
        "keyfile_password": tls.password or None,
        "check_hostname": tls.checks_host_name,
    }


def _stop(client: KazooClient) -> None:
    client.stop()
    # `stop` ends the session and kazoo's threads; `close` frees the sockets that woke them.
    client.close()
