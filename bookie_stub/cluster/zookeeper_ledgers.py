"""Which ledgers exist, asked of ZooKeeper: what garbage collection believes; and which a bookie may have lost.

Law of the place: "does not exist" is said only of a ledger whose neighbours were listed without an error, in the
cluster that the bookie belongs to, after ZooKeeper has caught up with all that was written before. Whatever else
happens is an error, and an error deletes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from bookie_stub.base.errors import RegistrationError
from bookie_stub.cluster.ledger_members import members_of_closed
from protocol.ledger_path import ledger_path

if TYPE_CHECKING:
    from kazoo.client import KazooClient

log = logging.getLogger(__name__)

_TOGETHER = 1000
"""Requests that are on their way at a time."""
_LEVEL = re.compile("[0-9]{2,4}")
_LEDGER = re.compile("L[0-9]{4}")
_LAYOUT = b"org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"


class ZooKeeperLedgers:
    """`cluster_ledgers.LedgerMetadata`. Calls block; any thread."""

    def __init__(self, client: KazooClient, root: str, instance_id: str) -> None:
        self._client = client
        self._root = root
        self._instance_id = instance_id

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Those of them (ascending) that do not exist any more. With `verify` each one is asked for by name too.

        Raises RegistrationError when anything is in doubt.
        """
        with self._certainly("listed"):
            gone = self._not_listed(ledger_ids)
            if verify:
                gone = [each for each in gone if self._client.exists(self._path(each)) is None]
        return gone

    def naming(self, bookie_id: str) -> list[int]:
        """Ledgers whose metadata has the id's bytes in it: in all of BookKeeper's formats the members of ensembles are
        written out. An id that begins or ends like this one is found as well, which does not matter: nobody asks a
        bookie for ledgers of another one. Raises RegistrationError."""
        with self._certainly("read"):
            return sorted(self._naming(bookie_id.encode()))

    def values(self, ledger_ids: Collection[int]) -> list[tuple[int, bytes]]:
        """The metadata of those of them that exist. Raises RegistrationError."""
        with self._certainly("read"):
            return list(self._values([(each, self._path(each)) for each in ledger_ids]))

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        """Those of them that are closed and do not name this bookie in any ensemble. One whose metadata is not there or
        cannot be understood is none of them. Raises RegistrationError."""
        with self._certainly("read"):
            return self._elsewhere(ledger_ids, bookie_id)

    @contextlib.contextmanager
    def replication_lock(self, ledger_id: int, bookie_id: str) -> Iterator[bool]:
        """The lock that BookKeeper's replication workers take; it goes with the session at the latest."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        path = f"{self._root}/underreplication/locks/urL{ledger_id:010}"
        owner = f'bookieId: "{bookie_id}"\n'.encode()
        with _kazoo_errors("locked"):
            try:
                self._client.create(path, owner, ephemeral=True, makepath=True)
                ours = True
            except NodeExistsError:
                ours = False
        try:
            yield ours
        finally:
            if ours:
                with _kazoo_errors("unlocked"), contextlib.suppress(NoNodeError):
                    self._client.delete(path)

    @contextlib.contextmanager
    def _certainly(self, what: str) -> Iterator[None]:
        """Around questions whose answers have to be those of our cluster, as of now."""
        if not self._client.connected:  # kazoo would wait for as long as it takes
            raise RegistrationError("there is no connection to ZooKeeper")
        with _kazoo_errors(what):
            # A server that is behind would not know a ledger that was made a moment ago.
            self._client.sync(self._root)
            self._check_cluster()
            yield
            self._check_cluster()

    def _naming(self, name: bytes) -> list[int]:
        ledgers = list(self._walk("", self._root))
        found = [ledger_id for ledger_id, value in self._values(ledgers) if name in value]
        log.info("%d ledgers looked at, %d are on this bookie", len(ledgers), len(found))
        return found

    def _values(self, ledgers: Sequence[tuple[int, str]]) -> Iterator[tuple[int, bytes]]:
        """`ledgers` and where they are."""
        from kazoo.exceptions import NoNodeError

        for start in range(0, len(ledgers), _TOGETHER):
            some = ledgers[start : start + _TOGETHER]
            answers = [self._client.get_async(path) for _, path in some]
            for (ledger_id, _), answer in zip(some, answers, strict=True):
                with contextlib.suppress(NoNodeError):  # deleted meanwhile
                    yield ledger_id, answer.get()[0]
            log.info("%d of %d ledgers looked at", start + len(some), len(ledgers))

    def _elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        from kazoo.exceptions import NoNodeError

        found: list[int] = []
        answers = [self._client.get_async(self._path(ledger_id)) for ledger_id in ledger_ids]
        for ledger_id, answer in zip(ledger_ids, answers, strict=True):
            try:
                members = members_of_closed(answer.get()[0])
            except NoNodeError:  # deleted, and found by `missing`
                continue
            except ValueError as error:
                log.warning("ledger %d stays, its metadata is not understood: %s", ledger_id, error)
                continue
            if members is not None and bookie_id not in members:
                found.append(ledger_id)
        return found

    def _walk(self, digits: str, path: str) -> Iterator[tuple[int, str]]:
        """Every ledger below, and where it is."""
        for name in sorted(self._children(path)):
            if _LEDGER.fullmatch(name):
                yield int(digits + name[1:]), f"{path}/{name}"
            elif _LEVEL.fullmatch(name):
                yield from self._walk(digits + name, f"{path}/{name}")

    def _check_cluster(self) -> None:
        """A cluster that was made anew, or ledgers laid out in another way, say nothing about ours."""
        instance_id = self._client.get(f"{self._root}/INSTANCEID")[0].decode()
        if instance_id != self._instance_id:
            raise RegistrationError(
                f"{self._root} is another cluster now: instanceId {instance_id} instead of {self._instance_id}"
            )
        layout = self._client.get(f"{self._root}/LAYOUT")[0]
        if _LAYOUT not in layout:
            raise RegistrationError(f"{self._root}/LAYOUT is {layout!r}, which this bookie cannot list")

    def _not_listed(self, ledger_ids: Sequence[int]) -> list[int]:
        """Up to 10,000 ledgers lie side by side and are listed together."""
        gone: list[int] = []
        for parent, neighbours in groupby(ledger_ids, key=lambda each: self._path(each).rpartition("/")[0]):
            listed = self._children(parent)
            gone += [each for each in neighbours if self._path(each).rpartition("/")[2] not in listed]
        return gone

    def _children(self, parent: str) -> set[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return set(self._client.get_children(parent))
        except NoNodeError:
            return set()

    def _path(self, ledger_id: int) -> str:
        return f"{self._root}/{ledger_path(ledger_id)}"


@contextlib.contextmanager
def _kazoo_errors(what: str) -> Iterator[None]:
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise RegistrationError(
            f"the ledgers in ZooKeeper cannot be {what}: {type(error).__name__} {error}"
        ) from error
