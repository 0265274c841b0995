"""Forbidden changes of the metadata store: a topic taken without a lease, a lease removed that others have or need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cluster.records import BUNDLES, decode_owner
from broker.managed_ledger.managed_ledger_info import ROOT
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name
from protocol.ledger_metadata import LedgerMetadata, LedgerState, decode
from tests.sim.cluster.divisions import STORED
from tests.sim.cluster.process import ClusterProcess, ProcessStore
from tests.sim.followers import Cluster, Leader
from tests.sim.metadata import Broken, check_step

if TYPE_CHECKING:
    from tests.sim.cluster.history import ClusterHistory


class ClusterWitness:
    """Judges each change at the leader, in the moment in which it is made."""

    def __init__(self, history: ClusterHistory, cluster: Cluster) -> None:
        self._history = history
        self._cluster = cluster
        self._writers: dict[str, ClusterProcess] = {}
        """The last writer of the list of each topic."""
        self._ledgers: dict[str, LedgerMetadata] = {}
        self._removed: set[tuple[str, Leader]] = set()
        """Leases and sessions, where somebody else removed the session's; it can learn that from its watch alone."""
        self.takeovers = 0
        """First writes of a list by another process."""

    def written(self, session: Leader, key: str, value: bytes) -> None:
        self._removed.discard((key, session))
        if key == STORED:
            self._history.divisions.written(session, value)
        elif value.startswith(b"BookieMetadataFormatVersion"):
            self._ledger(session, key, decode(value))
        elif key.startswith(f"{ROOT}/") and key.count("/") == ROOT.count("/") + 4:
            process = _process(session)
            if process is not None and self._writers.get(key) is not process:
                if key in self._writers:
                    self.takeovers += 1
                self._writers[key] = process
                self._check_lease(session, process, key.removeprefix(f"{ROOT}/"), "writes the list of")

        elif key.startswith(f"{ROOT}/") and key.count("/") == ROOT.count("/") + 5:
            process = _process(session)
            if process is not None:
                log = key.removeprefix(f"{ROOT}/").rpartition("/")[0]
                self._check_lease(session, process, log, "writes a cursor of")

    def _ledger(self, session: Leader, key: str, new: LedgerMetadata) -> None:
        old = self._ledgers.get(key)
        if old is not None:
            try:
                check_step(old, new)
            except Broken as error:
                self._history.broken(str(error))
        self._ledgers[key] = new
        process = _process(session)
        is_log = "pulsar/cursor" not in new.custom and "pulsar/managed-ledger" in new.custom
        if new.state is LedgerState.IN_RECOVERY and process is not None and is_log:
            self._check_lease(session, process, new.custom["pulsar/managed-ledger"].decode(), "fences")

    def _check_lease(self, session: Leader, process: ClusterProcess, ledger_name: str, what: str) -> None:
        tenant, namespace, domain, local = ledger_name.split("/")
        name = parse_topic_name(f"{domain}://{tenant}/{namespace}/{local}")
        lease = f"{BUNDLES}/{self._history.bundle_of(name)}"
        if self._cluster.first is None or self._cluster.first.session_of(lease) is session:
            return
        if (lease, session) in self._removed and lease.removeprefix(
            f"{BUNDLES}/"
        ) in process.ownership.leases:
            # The check of the lease compares a version, and the next owner's node has the same.
            self._history.counts.written_late += 1
            return
        self._history.broken(f"{process.client.name} {what} {name} without its lease")

    def deleted(self, session: Leader, key: str) -> None:
        if not key.startswith(f"{BUNDLES}/"):
            return
        assert self._cluster.first is not None
        holder = self._cluster.first.session_of(key)
        if holder is not None and holder is not session:
            self._removed.add((key, holder))
        process = _process(session)
        if process is None:
            return
        bundle = key.removeprefix(f"{BUNDLES}/")
        value = self._cluster.first.value_of(key)
        assert value is not None
        read_in, read = process.store.seen.get(key, (None, b""))
        if read_in is not session or decode_owner(read) != process.addresses:
            whose = "its" if decode_owner(value) == process.addresses else "another broker's"
            self._history.broken(f"{process.client.name} removes {whose} lease of {bundle} without a read")
        elif decode_owner(value) != process.addresses:
            # A removal compares a version, and every fresh node has the same: a store cannot tell that another broker has
            # made the node since the read.
            self._history.counts.removed_late += 1
        elif self._cluster.first.session_of(key) is session and bundle not in process.ownership.leases:
            open_ones = [
                text
                for text, topic in process.registry.topics.items()
                if isinstance(topic, PersistentTopic)
                and not topic.closed
                and self._history.bundle_of(topic.name) == bundle
            ]
            if open_ones:
                self._history.broken(f"{process.client.name} gives {bundle} up with {open_ones} open")


def _process(session: Leader) -> ClusterProcess | None:
    return session.holder.process if isinstance(session.holder, ProcessStore) else None
