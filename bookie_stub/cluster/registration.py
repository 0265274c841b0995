"""Registration: the bookie's place in ZooKeeper, as BookKeeper's clients look for it.

    <root>/LAYOUT, INSTANCEID            made by the first process of a cluster
    <root>/cookies/<bookie id>           the cookie, the same text as in the directories' VERSION
    <root>/available/<bookie id>         ephemeral, while the bookie takes adds
    <root>/available/readonly/<id>       ephemeral, while it serves reads only

The law: the available node is there only while the bookie listens. When the session expires the node is gone, and it is
made again in the new session. A running bookie goes on while ZooKeeper is away: clients that know it need no ZooKeeper.
BookKeeper's name: ZKRegistrationManager. Every call here blocks.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from bookie_stub.base.errors import RegistrationError
from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from foundation.zookeeper.errors import ZookeeperError, require_kazoo
from protocol.bookie_service_info import service_info

if TYPE_CHECKING:
    from foundation.zookeeper.session import ZookeeperSession
    from foundation.zookeeper.url import ZookeeperUrl

log = logging.getLogger(__name__)

LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
"""Layout version, and the Java class that lays ledgers out: BookKeeper's clients refuse a cluster without them."""


@contextlib.contextmanager
def ledgers_to_read(url: ZookeeperUrl, instance_id: str, timeout_s: float) -> Iterator[ZooKeeperLedgers]:
    """Returns the cluster's ledgers for a tool, which registers nothing.

    `instance_id` is that of the cluster that the files belong to. Raises RegistrationError when no ZooKeeper answers.
    """
    session = _connect(url, timeout_s)
    try:
        yield ZooKeeperLedgers(session.nodes, url.root, instance_id)
    finally:
        session.close()


def _connect(url: ZookeeperUrl, timeout_s: float) -> ZookeeperSession:
    with _registration_errors():
        require_kazoo("metadataServiceUri")
        from foundation.zookeeper.session import ZookeeperSession

        return ZookeeperSession.connect(url, timeout_s)


class Registration:
    """One bookie's registration, from `connect` to `close`.

    It is the `Cluster` of the bookie's directories, and its session's listener.
    """

    def __init__(self, session: ZookeeperSession, bookie_id: str, timeout_s: float) -> None:
        """Called by `connect` alone."""
        self.session = session
        """Holds the available node: ZooKeeper removes the node when this session ends."""
        self._nodes = session.nodes
        self._root = session.url.root
        self._bookie_id = bookie_id
        self._timeout_s = timeout_s
        self._value: bytes | None = None
        """Of the available node; None before the bookie listens."""
        self._read_only = False
        self.instance_id = ""
        """Of the cluster; part of every cookie."""

    @classmethod
    def connect(cls, url: ZookeeperUrl, bookie_id: str, timeout_s: float) -> Registration:
        """Returns a registration that announces nothing yet. Raises RegistrationError when no ZooKeeper answers.

        `timeout_s` is the session's, and how long to wait for ZooKeeper.
        """
        registration = cls(_connect(url, timeout_s), bookie_id, timeout_s)
        try:
            with _registration_errors():
                registration._prepare()
        except RegistrationError:
            registration.close()
            raise
        registration.session.listen(registration)
        return registration

    def _prepare(self) -> None:
        for name in ("available/readonly", "cookies"):
            self._nodes.ensure(f"{self._root}/{name}")
        self._create_once("LAYOUT", LAYOUT)
        self.instance_id = self._create_once("INSTANCEID", str(uuid4()).encode()).decode()

    def _create_once(self, name: str, value: bytes) -> bytes:
        """Creates the node where it is missing, and returns its value.

        Of several bookies that start at once only one makes it; all return the same.
        """
        path = f"{self._root}/{name}"
        if self._nodes.create(path, value):
            log.info("made %s", path)
        found = self._nodes.get(path)
        if found is None:
            raise RegistrationError(f"{path} was removed while the bookie registered; start it again")
        return found

    def ledgers(self) -> ZooKeeperLedgers:
        """Returns the cluster's ledgers, asked through the same session."""
        return ZooKeeperLedgers(self._nodes, self._root, self.instance_id)

    # The cookie: `directories.Cluster`.

    @property
    def cookie(self) -> str | None:
        """The cookie that the cluster keeps of this bookie. None before its first start. Raises RegistrationError."""
        with _registration_errors():
            found = self._nodes.get(self._cookie_path)
        return None if found is None else found.decode()

    def keep_cookie(self, cookie: str) -> None:
        """Keeps the cookie of a bookie that had none. Raises RegistrationError, also when another was faster."""
        with _registration_errors():
            if not self._nodes.create(self._cookie_path, cookie.encode()):
                raise RegistrationError(f"{self._cookie_path} exists already: is {self._bookie_id} running?")

    @property
    def _cookie_path(self) -> str:
        return f"{self._root}/cookies/{self._bookie_id}"

    # The available node.

    def announce(self, host: str, port: int, http_port: int | None = None, *, read_only: bool) -> None:
        """Lets clients find the bookie at this address, until `close`.

        `http_port` is that of its HTTP server, None where it is not to be found. Raises RegistrationError when another
        process holds the bookie's id, or ZooKeeper refuses.
        """
        self._value = service_info(host, port, http_port)
        self._read_only = read_only
        with _registration_errors():
            path = self._put_node()
        log.info("registered as %s", path)

    def close(self) -> None:
        """Ends the session, and with it the available node."""
        self._value = None
        self.session.close()

    def has_node(self) -> bool:
        """Returns True when the available node is ours: of the present session. Raises ZookeeperError."""
        return self._nodes.owner(self._places()[0]) == self.session.id

    def _places(self) -> tuple[str, str]:
        """Returns the available node's path in this mode and in the other one."""
        writable = f"{self._root}/available/{self._bookie_id}"
        read_only = f"{self._root}/available/readonly/{self._bookie_id}"
        return (read_only, writable) if self._read_only else (writable, read_only)

    def _put_node(self) -> str:
        assert self._value is not None
        path, other = self._places()
        # The node of this bookie's last process stays until that session ends, which is at most its timeout after the
        # process did. Twice that is enough for one that was killed, so a node that is still there belongs to a living
        # process.
        deadline = time.monotonic() + 2 * self._timeout_s
        while not self._nodes.create(path, self._value, ephemeral=True) and not self.has_node():
            log.info("waiting for the last session of %s to end", self._bookie_id)
            if not self._nodes.wait_until_gone(path, deadline - time.monotonic()):
                raise RegistrationError(f"{path} is held by another process: is {self._bookie_id} running?")
        # After the new node, so that clients find the bookie in one of the two at every moment.
        self._nodes.delete(other)
        return path

    # The session's listener, in kazoo's threads.

    def connected(self, *, new_session: bool) -> None:
        """Makes the available node again where it is missing.

        Also in the same session: a call that was out when the connection broke may have failed.
        """
        if self._value is not None:
            self.session.spawn(self._announce_again)

    def disconnected(self) -> None:
        """Does nothing: the session and the node may live on."""

    def expired(self) -> None:
        """Says so; `connected` follows."""
        if self._value is not None:
            log.warning(
                "the session with ZooKeeper has expired; clients cannot find this bookie until the next"
            )

    def _announce_again(self) -> None:
        try:
            log.info("registered as %s", self._put_node())
        except (ZookeeperError, RegistrationError) as error:
            log.error("not registered until the next connection: %s", error)


@contextlib.contextmanager
def _registration_errors() -> Iterator[None]:
    try:
        yield
    except ZookeeperError as error:
        raise RegistrationError(str(error)) from error
