"""Racks and affinity groups of bookies that Apache's broker sets hold at ours on the same ZooKeeper, and the reverse."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from protocol.ledger_metadata import decode, ledger_key
from tests.bookie_stub.bookie_process import Process
from tests.interop.support import Admin, Json, connect, numbered, publish, wait_until
from tests.support.apache_broker import ApacheBroker, pulsar_home
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import Addresses, BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

BOOKIES: Final = 4
TOPICS: Final = 5
"""In a namespace with a group: each chooses its bookies anew."""
TWO: Final = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}


class Both:
    """A broker of Apache's, one of ours and four bookies on one ZooKeeper."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self._folder = folder
        root = f"/{folder.name}"
        url = f"zk:{zookeeper.address}{root}"
        self.store = KazooClient(hosts=zookeeper.address + root)
        self.apache = ApacheBroker(pulsar_home(), folder, url, TWO)
        self.ours = BrokerProcess(folder, {"metadataStoreUrl": url, "bookieAddress": "registered", **TWO})
        self._processes: list[Process] = []
        self.bookies: list[str] = []
        self._service = f"zk+hierarchical://{zookeeper.address}{root}/ledgers"

    def start(self) -> None:
        self.apache.set_up()
        for number in range(BOOKIES):
            port = free_port()
            settings = (f"bookiePort={port}", "advertisedAddress=127.0.0.1")
            self._processes.append(Process(self._folder / f"bookie-{number}"))
            self._processes[-1].start(*settings, f"metadataServiceUri={self._service}")
            self.bookies.append(f"127.0.0.1:{port}")
        self.apache.start()
        self.ours.start()
        self.store.start()

    def end(self) -> None:
        self.store.stop()
        self.apache.kill()
        self.ours.kill()
        for process in self._processes:
            process.end(signal.SIGKILL)

    def place(self, addresses: Addresses, namespace: str, group: str, bookies: tuple[str, str]) -> None:
        """Puts both bookies into the group, in racks of their own, and makes a namespace that belongs to the group.

        By the requests of `pulsar-admin bookies set-bookie-rack` and `namespaces set-bookie-affinity-group`.
        """
        admin = Admin(addresses.admin)
        for number, bookie in enumerate(bookies):
            place: dict[str, Json] = {"rack": f"/rack-{number}", "hostname": bookie}
            admin.post(f"bookies/racks-info/{bookie}?group={group}", place)
        admin.put(f"namespaces/{namespace}")
        affinity: dict[str, Json] = {"bookkeeperAffinityGroupPrimary": group}
        admin.post(f"namespaces/{namespace}/persistence/bookieAffinity", affinity)

    def members(self, name: str) -> set[str]:
        """Returns the bookies of the topic's ledgers."""
        found, _ = self.store.get(managed_ledger_key(name))
        ledgers = [self.store.get(ledger_key(one.ledger_id))[0] for one in decode_ledger_list(found).ledgers]
        return {member for one in ledgers for segment in decode(one).segments for member in segment.members}


@pytest.fixture
def both(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Both]:
    both = Both(tmp_path, zookeeper)
    both.start()
    yield both
    both.end()


@pytest.mark.parametrize("theirs_set", [True, False], ids=["apache-sets", "magnetar-sets"])
def test_groups_that_one_broker_sets_hold_at_the_other(both: Both, theirs_set: bool) -> None:
    setter, obeys = both.apache.addresses, both.ours.addresses
    if not theirs_set:
        setter, obeys = obeys, setter
    pairs = {"one": (both.bookies[0], both.bookies[1]), "two": (both.bookies[2], both.bookies[3])}
    for group, bookies in pairs.items():
        both.place(setter, f"public/{group}", group, bookies)
    admin = Admin(obeys.admin)
    for group, bookies in pairs.items():
        # The other broker shows both: it has what the first one stored.
        wait_until(lambda group=group, bookies=bookies: _has_group(admin, group, bookies), f"group {group}")  # type: ignore[misc]
    client = connect(obeys.pulsar)
    for group, bookies in pairs.items():
        for number in range(TOPICS):
            producer = client.create_producer(f"persistent://public/{group}/t{number}")
            publish(producer, numbered(3))
            assert both.members(f"public/{group}/persistent/t{number}") == set(bookies)
    client.close()


def _has_group(admin: Admin, group: str, bookies: tuple[str, str]) -> bool:
    racks = admin.get("bookies/racks-info")
    affinity = admin.get(f"namespaces/public/{group}/persistence/bookieAffinity")
    if not isinstance(racks, dict) or not isinstance(affinity, dict):
        return False
    members = racks.get(group)
    is_whole = isinstance(members, dict) and set(members) == set(bookies)
    return is_whole and affinity.get("bookkeeperAffinityGroupPrimary") == group
