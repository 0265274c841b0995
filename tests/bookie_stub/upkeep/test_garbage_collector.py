"""Garbage collection: ledgers that the metadata store lacks are deleted, and doubt deletes none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError

from bookie_stub.base.errors import RegistrationError
from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import CollectionSettings
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.upkeep.directory_compactions import ForcedRound
from foundation.zookeeper.many_reads import Answer, ManyReads, NodeData
from foundation.zookeeper.nodes import ZookeeperNodes
from protocol.ledger_path import ledger_path
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.upkeep.test_compaction import compact
from tests.support.bookie_settings import for_directory

OK, NO_LEDGER = 0, 1
LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


class Later:
    """An answer of kazoo's, made when it is asked for."""

    def __init__(self) -> None:
        self.get: Callable[[], list[Answer]] = list


class Store:
    """A tree of nodes that answers like kazoo's client, and fails when told to."""

    def __init__(self, ledger_ids: Sequence[int]) -> None:
        self.connected = True
        self.handler = SimpleNamespace(async_result=Later)
        self.nodes = {"/ledgers/INSTANCEID": b"the cluster", "/ledgers/LAYOUT": LAYOUT}
        self.hidden_from_lists: set[str] = set()
        self.fails: set[str] = set()
        self.calls: list[str] = []
        for ledger_id in ledger_ids:
            self.nodes[f"/ledgers/{ledger_path(ledger_id)}"] = b"metadata"

    def remove(self, ledger_id: int) -> None:
        del self.nodes[f"/ledgers/{ledger_path(ledger_id)}"]

    def _note(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise ConnectionLoss

    def sync(self, _path: str) -> None:
        self._note("sync")

    def get(self, path: str) -> tuple[bytes, object]:
        self._note("get")
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path], None

    def exists(self, path: str) -> object:
        self._note("exists")
        return self.nodes.get(path)

    def get_children(self, path: str) -> list[str]:
        self._note("get_children")
        found = [node for node in self.nodes if node.startswith(path + "/")]
        if not found:
            raise NoNodeError
        seen = [node for node in found if node not in self.hidden_from_lists]
        return sorted({node.removeprefix(path + "/").partition("/")[0] for node in seen})

    def _call(self, request: ManyReads, answer: Later) -> None:
        answer.get = partial(self._read_many, [path for _, path in request.reads])

    def _read_many(self, paths: Sequence[str]) -> list[Answer]:
        self._note("get")
        return [
            NodeData(self.nodes[path], 0, 0, 0) if path in self.nodes else NoNodeError() for path in paths
        ]

    def create(self, path: str, value: bytes, *, ephemeral: bool, makepath: bool) -> None:
        self._note("create")
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = value

    def delete(self, path: str) -> None:
        self._note("delete")
        del self.nodes[path]


class World:
    def __init__(self, bench: Bench, ledger_ids: Sequence[int]) -> None:
        self.bench = bench
        self.store = Store(ledger_ids)
        self.bookie = Bookie.open(
            for_directory(bench.directory, collection=CollectionSettings(rate=0)),
            bench.loop.call_soon_threadsafe,
            metadata=ZooKeeperLedgers(ZookeeperNodes(self.store), "/ledgers", "the cluster"),
        )
        bench.bookie = self.bookie

    async def left(self) -> set[int]:
        """Returns the ledgers that are left after a round."""
        await compact(self.bench)
        return set(self.bookie.state.ledgers.by_id)


LEDGERS = (1, 2, 9_999, 10_000, 123_456_789, 2**31 - 2, 2**31 - 1, 2**40)


@pytest.fixture
async def world(bench: Bench) -> World:
    world = World(bench, LEDGERS)
    for ledger_id in LEDGERS:
        await bench.add_all(ledger_id, range(3))
    await bench.checkpoint()
    return world


async def test_collection_deletes_ledgers_that_the_store_does_not_have(world: World) -> None:
    assert await world.left() == set(LEDGERS)
    for ledger_id in (2, 10_000, 2**31 - 1):
        world.store.remove(ledger_id)
    assert await world.left() == set(LEDGERS) - {2, 10_000, 2**31 - 1}
    assert await world.bench.read(2, 0) == (NO_LEDGER, b"")
    assert await world.bench.read(1, 0) == (OK, b"0 payload")
    assert world.bookie.stats.deleted_ledgers == 3
    for ledger_id in set(LEDGERS) - {2, 10_000, 2**31 - 1}:
        world.store.remove(ledger_id)
    assert await world.left() == set()
    world.bench.reopen()
    assert not world.bench.running.state.ledgers.by_id
    await world.bench.checkpoint()


async def test_collection_removes_dead_logs_in_the_same_round(world: World) -> None:
    world.bench.reopen()
    world.bench.close()
    world = World(world.bench, [])
    directory = world.bench.directory / "ledgers/current"
    assert log_ids(directory)
    assert await world.left() == set()
    assert not log_ids(directory)
    assert world.bookie.stats.collection.reclaimed_by_deletion > 0


@pytest.mark.parametrize("call", ["sync", "get", "get_children", "exists"])
async def test_collection_deletes_no_ledger_when_the_store_fails(world: World, call: str) -> None:
    world.store.remove(1)
    world.store.fails = {call}
    assert await world.left() == set(LEDGERS)
    world.store.fails = set()
    assert await world.left() == set(LEDGERS) - {1}


async def test_collection_deletes_no_ledger_without_a_connection(world: World) -> None:
    world.store.remove(1)
    world.store.connected = False
    assert await world.left() == set(LEDGERS)
    assert not world.store.calls


@pytest.mark.parametrize("node", ["INSTANCEID", "LAYOUT"])
@pytest.mark.parametrize("content", [None, b"another"])
async def test_collection_deletes_no_ledger_for_another_cluster(
    world: World, node: str, content: bytes | None
) -> None:
    """A cluster made anew at the same place, which is empty, counts as another one."""
    world.store.nodes = {"/ledgers/INSTANCEID": b"the cluster", "/ledgers/LAYOUT": LAYOUT}
    del world.store.nodes[f"/ledgers/{node}"]
    if content is not None:
        world.store.nodes[f"/ledgers/{node}"] = content
    assert await world.left() == set(LEDGERS)


def test_collection_asks_by_name_for_a_ledger_missing_in_the_list() -> None:
    store = Store([5, 6])
    store.hidden_from_lists = {f"/ledgers/{ledger_path(5)}"}
    ledgers = ZooKeeperLedgers(ZookeeperNodes(store), "/ledgers", "the cluster")
    assert ledgers.missing([5, 6, 7], verify=True) == [7]
    assert ledgers.missing([5, 6, 7], verify=False) == [5, 7]
    store.nodes["/ledgers/INSTANCEID"] = b"other"
    with pytest.raises(RegistrationError, match="another cluster"):
        ledgers.missing([5], verify=True)


def test_collection_lists_neighbouring_ledgers_once() -> None:
    store = Store(range(30_000))
    assert (
        ZooKeeperLedgers(ZookeeperNodes(store), "/ledgers", "the cluster").missing(range(30_000), verify=True)
        == []
    )
    assert store.calls.count("get_children") == 3


async def test_collection_keeps_a_ledger_created_during_the_round(world: World) -> None:
    """A new ledger is in the store before it is here, and the bookie lists its own ledgers first."""
    world.store.nodes[f"/ledgers/{ledger_path(77)}"] = b"metadata"
    await world.bench.add_all(77, range(3))
    assert 77 in await world.left()


async def test_forced_is_true_until_the_forced_round_ends(bench: Bench) -> None:
    bookie = bench.open()
    bookie.upkeep.collector.force(ForcedRound(major=True))
    assert bookie.upkeep.collector.forced
    await bench.until(lambda: not bookie.upkeep.collector.forced)
    assert bookie.stats.collection.majors == 1


def test_ledger_paths_are_those_of_bookkeeper() -> None:
    assert ledger_path(12345678) == "00/1234/L5678"
    assert ledger_path(2**31 - 1) == "000/0000/0021/4748/L3647"
    assert Path(ledger_path(0)) == Path("00/0000/L0000")


# Which ledgers a bookie may have lost.


def placed(members: dict[int, str]) -> Store:
    store = Store(())
    for ledger_id, member in members.items():
        metadata = f'BookieMetadataFormatVersion\t2\nsegment {{ ensembleMember: "{member}" }}'
        store.nodes[f"/ledgers/{ledger_path(ledger_id)}"] = metadata.encode()
    for name in ("available/a:1", "cookies/a:1", "idgen/ID-0000", "idgen-long/HOB-0000000001/ID-01"):
        store.nodes[f"/ledgers/{name}"] = b"a:1"
    return store


def test_naming_finds_ledgers_at_any_depth() -> None:
    members = {0: "a:1", 7: "b:1", 12_345_678: "a:1", 2**31: "a:1", 2**31 + 1: "b:1", 2**62: "a:1"}
    ledgers = ZooKeeperLedgers(ZookeeperNodes(placed(members)), "/ledgers", "the cluster")
    assert ledgers.naming("a:1") == [0, 12_345_678, 2**31, 2**62]


@pytest.mark.parametrize("trouble", ["get", "get_children", "sync", "connection", "other cluster"])
def test_naming_raises_when_the_list_is_in_doubt(trouble: str) -> None:
    store = placed({1: "a:1"})
    store.connected = trouble != "connection"
    store.fails = {trouble}
    if trouble == "other cluster":
        store.nodes["/ledgers/INSTANCEID"] = b"made anew"
    with pytest.raises(RegistrationError):
        ZooKeeperLedgers(ZookeeperNodes(store), "/ledgers", "the cluster").naming("a:1")


def test_naming_leaves_out_a_ledger_deleted_meanwhile() -> None:
    store = placed({1: "a:1", 2: "a:1"})
    listed = store.get_children

    def get_children(path: str) -> list[str]:
        found = listed(path)
        if path == "/ledgers/00/0000":
            store.remove(1)
        return found

    store.get_children = get_children  # type: ignore[method-assign]
    assert ZooKeeperLedgers(ZookeeperNodes(store), "/ledgers", "the cluster").naming("a:1") == [2]
