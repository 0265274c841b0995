"""ZooKeeperLedgers: finds the ledgers that exist, and those a bookie lost.

Garbage collection asks the first question, a start after a loss the second.

The law: "does not exist" is said only of a ledger whose neighbours were listed without an error, in the cluster that the
bookie belongs to, after ZooKeeper has caught up with all that was written before. Everything else is an error, and an
error deletes nothing. BookKeeper does the same in ScanAndCompareGarbageCollector and LedgerManager.

    <root>/00/1234/L5678                                     the metadata of ledger 12345678
    <root>/INSTANCEID, LAYOUT                                which cluster this is, and how it lays ledgers out
    <root>/underreplication/locks/urL0000000007              ephemeral: a process is working on the copies of ledger 7
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from bookie_stub.base.errors import RegistrationError
from foundation.zookeeper.errors import ZookeeperError
from protocol.ledger_metadata import LedgerMetadataError, LedgerState, decode
from protocol.ledger_path import ledger_path

if TYPE_CHECKING:
    from foundation.zookeeper.nodes import ZookeeperNodes

log = logging.getLogger(__name__)

_TOGETHER = 1000
"""Requests that are on their way at a time."""
_LEVEL = re.compile("[0-9]{2,4}")
_LEDGER = re.compile("L[0-9]{4}")
_LAYOUT = b"org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"


class ZooKeeperLedgers:
    """The cluster's ledgers as garbage collection sees them.

    Calls block. They come from the garbage collection's thread, or from a start. Each raises RegistrationError when
    anything is in doubt, because its answer decides which entries are deleted.
    """

    def __init__(self, nodes: ZookeeperNodes, root: str, instance_id: str) -> None:
        """`root`: the cluster's node, `/ledgers` in most.

        `instance_id`: of the cluster that the bookie's cookie names.
        """
        self._nodes = nodes
        self._root = root
        self._instance_id = instance_id

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Returns those of the ledgers (ascending) that do not exist any more; `verify` asks for each by name too.

        Lists neighbours first: one list answers for up to 10,000 ledgers.
        """
        with self._certainly("listed"):
            gone = self._not_listed(ledger_ids)
            if verify:
                gone = [each for each in gone if not self._nodes.exists(self._path(each))]
        return gone

    def naming(self, bookie_id: str) -> list[int]:
        """Returns all ledgers with this bookie in an ensemble of any segment, from the metadata of every ledger."""
        with self._certainly("read"):
            ledgers = list(self._walk("", self._root))
            name = bookie_id.encode()
            # All of BookKeeper's formats write the members of ensembles out, so the id's bytes are enough. An id that
            # begins or ends like this one is found as well, which does no harm: no client asks a bookie for ledgers of
            # another one.
            found = [ledger_id for ledger_id, value in self._values(ledgers) if name in value]
        log.info("%d ledgers were read, %d of them name this bookie", len(ledgers), len(found))
        return sorted(found)

    def values(self, ledger_ids: Collection[int]) -> list[tuple[int, bytes]]:
        """Returns the metadata of those of the ledgers that exist."""
        with self._certainly("read"):
            return list(self._values([(each, self._path(each)) for each in ledger_ids]))

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        """Returns those that are closed and do not name this bookie in any segment.

        Leaves out ledgers whose metadata is missing or unreadable.
        """
        found: list[int] = []
        with self._certainly("read"):
            for ledger_id, value in self._values([(each, self._path(each)) for each in ledger_ids]):
                try:
                    members = members_of_closed(value)
                except LedgerMetadataError as error:
                    log.warning("ledger %d keeps its entries here: %s", ledger_id, error)
                    continue
                if members is not None and bookie_id not in members:
                    found.append(ledger_id)
        return found

    @contextlib.contextmanager
    def replication_lock(self, ledger_id: int, bookie_id: str) -> Iterator[bool]:
        """Keeps re-replication away from the ledger; False when another process has the lock.

        It is the lock of BookKeeper's replication workers, and ends with our session at the latest.
        """
        path = f"{self._root}/underreplication/locks/urL{ledger_id:010}"
        owner = f'bookieId: "{bookie_id}"\n'.encode()
        with _registration_errors("locked"):
            ours = self._nodes.create(path, owner, ephemeral=True, parents=True)
        try:
            yield ours
        finally:
            if ours:
                with _registration_errors("unlocked"):
                    self._nodes.delete(path)

    @contextlib.contextmanager
    def _certainly(self, what: str) -> Iterator[None]:
        """Makes sure that answers are our cluster's, and up to date."""
        # A call without a connection would wait for ZooKeeper without a limit, and the collection with it.
        if not self._nodes.connected:
            raise RegistrationError("there is no connection to ZooKeeper")
        with _registration_errors(what):
            # A server that lags would deny a ledger that was made a moment ago.
            self._nodes.sync(self._root)
            self._check_cluster()
            yield
            # Again: the cluster may have been replaced between the first check and the answers.
            self._check_cluster()

    def _values(self, ledgers: Sequence[tuple[int, str]]) -> Iterator[tuple[int, bytes]]:
        """Yields id and metadata of those that exist. `ledgers`: id and path."""
        for some in _in_batches(ledgers):
            ids = {path: ledger_id for ledger_id, path in some}
            for node in self._nodes.get_many(list(ids)):
                yield ids[node.path], node.value

    def _walk(self, digits: str, path: str) -> Iterator[tuple[int, str]]:
        """Yields id and path of every ledger below `path`. `digits` is the part of the id in `path` itself."""
        for name in sorted(self._nodes.children(path)):
            if _LEDGER.fullmatch(name):
                yield int(digits + name[1:]), f"{path}/{name}"
            elif _LEVEL.fullmatch(name):
                yield from self._walk(digits + name, f"{path}/{name}")

    def _check_cluster(self) -> None:
        """Raises RegistrationError when the nodes do not speak for our ledgers.

        A cluster that was made anew at the same place has none of our ledgers, and another layout has them elsewhere: in
        both every ledger would look deleted.
        """
        instance_id = self._required("INSTANCEID").decode()
        if instance_id != self._instance_id:
            raise RegistrationError(
                f"{self._root} is another cluster now: instanceId {instance_id} instead of {self._instance_id}"
            )
        layout = self._required("LAYOUT")
        if _LAYOUT not in layout:
            raise RegistrationError(f"{self._root}/LAYOUT is {layout!r}, which this bookie cannot list")

    def _required(self, name: str) -> bytes:
        value = self._nodes.get(f"{self._root}/{name}")
        if value is None:
            raise RegistrationError(f"{self._root} has no {name}, so it may be another cluster")
        return value

    def _not_listed(self, ledger_ids: Sequence[int]) -> list[int]:
        """Returns the ledgers that their parents' lists leave out. Up to 10,000 ledgers have one parent."""
        gone: list[int] = []
        for parent, neighbours in groupby(ledger_ids, key=lambda each: self._path(each).rpartition("/")[0]):
            listed = set(self._nodes.children(parent))
            gone += [each for each in neighbours if self._path(each).rpartition("/")[2] not in listed]
        return gone

    def _path(self, ledger_id: int) -> str:
        return f"{self._root}/{ledger_path(ledger_id)}"


def members_of_closed(value: bytes) -> frozenset[str] | None:
    """Returns every bookie that an ensemble of a closed ledger names, None for a ledger that is not closed.

    Raises LedgerMetadataError when the metadata leaves that open.
    """
    metadata = decode(value)
    if metadata.state is not LedgerState.CLOSED:
        return None
    members = frozenset(member for segment in metadata.segments for member in segment.members)
    # An empty set would say that the ledger is on no bookie, and every bookie would delete its entries.
    if not members:
        raise LedgerMetadataError("the metadata of a closed ledger names no bookie")
    return members


def _in_batches(ledgers: Sequence[tuple[int, str]]) -> Iterator[Sequence[tuple[int, str]]]:
    for start in range(0, len(ledgers), _TOGETHER):
        yield ledgers[start : start + _TOGETHER]
        if len(ledgers) > _TOGETHER:  # A walk over millions takes minutes, and a silent start looks stuck.
            log.info("%d of %d ledgers were read", min(start + _TOGETHER, len(ledgers)), len(ledgers))


@contextlib.contextmanager
def _registration_errors(what: str) -> Iterator[None]:
    try:
        yield
    except ZookeeperError as error:
        raise RegistrationError(f"the ledgers in ZooKeeper cannot be {what}: {error}") from error
