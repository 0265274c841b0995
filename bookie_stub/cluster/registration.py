"""The bookie's place in ZooKeeper, as BookKeeper's clients look for it: cookie and available node.

    <root>/LAYOUT, INSTANCEID            made by whoever comes first
    <root>/cookies/<bookie id>           the cookie, the same text as in the directories' VERSION
    <root>/available/<bookie id>         ephemeral, while the bookie takes adds
    <root>/available/readonly/<id>       ephemeral, while it does not

Law of the place: the node is there only while the bookie listens. A lost session is replaced by a new one and the
node made again. ZooKeeper away does not stop a running bookie: clients that know it go on. `kazoo` has threads of its
own; every call here blocks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from bookie_stub.base.errors import RegistrationError
from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from bookie_stub.config.metadata_uri import MetadataUri
from protocol.bookkeeper_metadata_pb2 import BookieServiceInfoFormat

if TYPE_CHECKING:
    from kazoo.client import KazooClient

log = logging.getLogger(__name__)

LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
ENDPOINT_ID = "bookie"
PROTOCOL = "bookie-rpc"
_RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 2.0}
"""Seconds between two attempts to reach ZooKeeper, for as long as it takes."""


def service_info(host: str, port: int) -> bytes:
    """The value of the available node: how to reach the bookie, whatever its id looks like."""
    endpoint = BookieServiceInfoFormat.Endpoint(id=ENDPOINT_ID, port=port, host=host, protocol=PROTOCOL)
    return BookieServiceInfoFormat(endpoints=[endpoint]).SerializeToString()


def _client(uri: MetadataUri, timeout_s: float) -> KazooClient:
    try:
        from kazoo.client import KazooClient
    except ImportError:
        raise RegistrationError(
            "metadataServiceUri: the package kazoo is missing; pip install 'magnetar[zookeeper]'"
        ) from None
    return KazooClient(hosts=uri.hosts, timeout=timeout_s, connection_retry=_RETRY)


@contextlib.contextmanager
def _or_not_reached(uri: MetadataUri, timeout_s: float, close: Callable[[], None]) -> Iterator[None]:
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        close()
        raise RegistrationError(
            f"no ZooKeeper at {uri.hosts} within {timeout_s:g} s ({type(error).__name__} {error})"
        ) from error


@contextlib.contextmanager
def ledgers_to_read(uri: MetadataUri, instance_id: str, timeout_s: float) -> Iterator[ZooKeeperLedgers]:
    """For tools, which register nothing. `instance_id` is that of the cluster that the files belong to.

    RegistrationError when ZooKeeper is not there.
    """
    client = _client(uri, timeout_s)
    with _or_not_reached(uri, timeout_s, client.stop):
        client.start(timeout=timeout_s)
    try:
        yield ZooKeeperLedgers(client, uri.root, instance_id)
    finally:
        client.stop()
        client.close()


class Registration:
    def __init__(self, client: KazooClient, root: str, bookie_id: str, timeout_s: float) -> None:
        """Use `connect`."""
        self._client = client
        self._root = root
        self._bookie_id = bookie_id
        self._timeout_s = timeout_s
        self._value: bytes | None = None
        """Of the available node; None before the bookie listens."""
        self._read_only = False
        self.instance_id = ""
        """Of the cluster; part of every cookie."""

    @classmethod
    def connect(cls, uri: MetadataUri, bookie_id: str, timeout_s: float) -> Registration:
        """`timeout_s` is the session's, and how long to wait for ZooKeeper. RegistrationError when it is not there."""
        client = _client(uri, timeout_s)
        registration = cls(client, uri.root, bookie_id, timeout_s)
        with _or_not_reached(uri, timeout_s, registration.close):
            client.start(timeout=timeout_s)
            registration._prepare()
        client.add_listener(registration._state_changed)
        return registration

    def _prepare(self) -> None:
        for name in ("available/readonly", "cookies"):
            self._client.ensure_path(f"{self._root}/{name}")
        self._create_once("LAYOUT", LAYOUT)
        self.instance_id = self._create_once("INSTANCEID", str(uuid4()).encode()).decode()

    def _create_once(self, name: str, value: bytes) -> bytes:
        """What the node has in the end, whoever made it."""
        from kazoo.exceptions import NodeExistsError

        path = f"{self._root}/{name}"
        with contextlib.suppress(NodeExistsError):
            self._client.create(path, value)
            log.info("made %s", path)
        found: bytes = self._client.get(path)[0]
        return found

    def ledgers(self) -> ZooKeeperLedgers:
        """What the cluster knows of ledgers, over the same session."""
        return ZooKeeperLedgers(self._client, self._root, self.instance_id)

    # The cookie: `directories.Cluster`.

    @property
    def cookie(self) -> str | None:
        from kazoo.exceptions import NoNodeError

        try:
            found: bytes = self._client.get(self._cookie_path)[0]
        except NoNodeError:
            return None
        return found.decode()

    def keep_cookie(self, cookie: str) -> None:
        """Of a bookie that had none."""
        self._client.create(self._cookie_path, cookie.encode())

    @property
    def _cookie_path(self) -> str:
        return f"{self._root}/cookies/{self._bookie_id}"

    # The available node.

    def announce(self, host: str, port: int, *, read_only: bool) -> None:
        """From now on clients find the bookie there. RegistrationError when another one holds its id."""
        self._value = service_info(host, port)
        self._read_only = read_only
        path = self._put_node()
        log.info("registered as %s", path)

    def close(self) -> None:
        """Ends the session, and with it the node."""
        self._value = None
        self._client.stop()
        self._client.close()

    def _put_node(self) -> str:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        writable = f"{self._root}/available/{self._bookie_id}"
        read_only = f"{self._root}/available/readonly/{self._bookie_id}"
        path, other = (read_only, writable) if self._read_only else (writable, read_only)
        deadline = time.monotonic() + 2 * self._timeout_s
        while True:
            with contextlib.suppress(NodeExistsError):
                self._client.create(path, self._value, ephemeral=True)
                break
            if self._is_ours(path):
                break
            if not self._wait_until_gone(path, deadline - time.monotonic()):
                raise RegistrationError(f"{path} is held by another process: is {self._bookie_id} running?")
        with contextlib.suppress(NoNodeError):
            self._client.delete(other)
        return path

    def _is_ours(self, path: str) -> bool:
        stat = self._client.exists(path)
        return stat is not None and stat.owner_session_id == self._client.client_id[0]

    def _wait_until_gone(self, path: str, wait_s: float) -> bool:
        """The node of the process before this one goes with its session."""
        gone = threading.Event()
        if self._client.exists(path, watch=lambda _event: gone.set()) is None:
            return True
        log.info("waiting for the last session of %s to end", self._bookie_id)
        return wait_s > 0 and gone.wait(wait_s)

    def _state_changed(self, state: str) -> None:
        """In a thread of kazoo's, which must not wait for kazoo. Any connection may bring a new session."""
        if self._value is None:
            return
        if state == "LOST":
            log.warning("the session with ZooKeeper is lost; clients do not find this bookie any more")
        elif state == "CONNECTED":
            self._client.handler.spawn(self._announce_again)

    def _announce_again(self) -> None:
        from kazoo.exceptions import KazooException

        try:
            log.info("registered as %s", self._put_node())
        except (KazooException, RegistrationError) as error:
            log.error("not registered until the next connection: %s %s", type(error).__name__, error)
