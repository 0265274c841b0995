"""Over-replicated ledgers: entries go only where no ensemble names the bookie, and they can come back."""

from __future__ import annotations

import errno

import pytest

from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers, members_of_closed
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import CollectionSettings
from bookie_stub.disk.entry_log import log_ids
from foundation.zookeeper.nodes import ZookeeperNodes
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode
from protocol.ledger_path import ledger_path
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.upkeep.test_compaction import compact
from tests.bookie_stub.upkeep.test_garbage_collector import Store
from tests.support.bookie_settings import for_directory

OK, NO_LEDGER, NO_ENTRY, FENCED, UNAUTHORIZED = 0, 1, 2, 104, 102
HERE, B, C = "127.0.0.1:3181", "127.0.0.1:31810", "b:3181"
PATH = "/ledgers/"


def closed(*ensembles: tuple[str, ...], state: LedgerState = LedgerState.CLOSED) -> bytes:
    segments = tuple(LedgerSegment(members, 10 * number) for number, members in enumerate(ensembles))
    return encode(LedgerMetadata(segments, state, length=30, last_entry_id=2))


TEXT = b"""BookieMetadataFormatVersion\t2
quorumSize: 1
ensembleSize: 1
length: 30
lastEntryId: 2
state: CLOSED
segment {
  ensembleMember: "b:3181"
  firstEntryId: 0
}
digestType: CRC32C
password: "secret"
ackQuorumSize: 1
"""
LINES = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tb:3181\n7\tCLOSED"


def test_members_of_closed_returns_the_bookies_of_a_closed_ledger() -> None:
    assert members_of_closed(closed((B, C), (C, HERE))) == frozenset({B, C, HERE})
    assert members_of_closed(TEXT) == frozenset({C})
    assert members_of_closed(closed((B,), state=LedgerState.OPEN)) is None
    assert members_of_closed(closed((B,), state=LedgerState.IN_RECOVERY)) is None
    assert members_of_closed(TEXT.replace(b"CLOSED", b"OPEN")) is None
    assert members_of_closed(LINES.replace(b"CLOSED", b"b:3182")) is None
    assert members_of_closed(LINES.replace(b"\n7\t", b"\n-102\t")) is None
    assert members_of_closed(LINES) == frozenset({C})


DOUBTFUL = [
    b"",
    b"metadata",
    closed(),
    closed((B,))[:-1],
    closed((B,)) + b"\0",
    TEXT.replace(b"CLOSED", b"DONE"),
    TEXT.replace(b"\t2", b"\t4"),
    TEXT.replace(b"state: CLOSED", b""),
    LINES.replace(b"\n7\t", b"\n\t"),
]


@pytest.mark.parametrize("value", DOUBTFUL)
def test_members_of_closed_raises_for_doubtful_metadata(value: bytes) -> None:
    with pytest.raises(ValueError, match="metadata"):
        members_of_closed(value)


# In the bookie.

ELSEWHERE = {1: closed((B, C)), 2: closed((B,), (C,)), 9_999: TEXT}
STAYS = {
    3: closed((B,), (HERE,)),
    4: closed((HERE, B), (B, C)),
    5: closed((B, C), state=LedgerState.OPEN),
    6: closed((B, C), state=LedgerState.IN_RECOVERY),
    7: LINES.replace(b"\n7\t", b"\n-102\t"),
    **{20 + number: value for number, value in enumerate(DOUBTFUL)},
}
EVERY = sorted({**ELSEWHERE, **STAYS})


class World:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.store = Store(())
        for ledger_id, value in {**ELSEWHERE, **STAYS}.items():
            self.store.nodes[PATH + ledger_path(ledger_id)] = value
        self.open()

    def open(self) -> Bookie:
        self.bench.close()
        collection = CollectionSettings(rate=0, over_replicated_wait_s=0.000_001)
        self.bookie = Bookie.open(
            for_directory(self.bench.directory, bookie_id=HERE, collection=collection),
            self.bench.loop.call_soon_threadsafe,
            file_system=self.bench.file_system,
            metadata=ZooKeeperLedgers(ZookeeperNodes(self.store), "/ledgers", "the cluster"),
        )
        self.bench.bookie = self.bookie
        return self.bookie

    async def kept(self) -> set[int]:
        """Returns the ledgers that still have their entries after a round."""
        await compact(self.bench)
        return await self.with_entries()

    async def with_entries(self) -> set[int]:
        answers = {ledger_id: await self.bench.read(ledger_id, 0) for ledger_id in EVERY}
        assert {rc for rc, _ in answers.values()} <= {OK, NO_ENTRY}
        return {ledger_id for ledger_id, (rc, _) in answers.items() if rc == OK}


@pytest.fixture
async def world(bench: Bench) -> World:
    world = World(bench)
    for ledger_id in EVERY:
        await bench.add_all(ledger_id, range(3))
    await bench.checkpoint()
    return world


async def test_round_gives_up_entries_of_ledgers_that_no_ensemble_places_here(world: World) -> None:
    assert await world.kept() == set(STAYS)
    assert world.bookie.stats.deleted_ledgers == len(ELSEWHERE)
    assert not [node for node in world.store.nodes if "locks" in node], "the locks are given back"
    assert set(world.bookie.state.ledgers.by_id) == set(EVERY), "they stay known"
    world.open()
    assert await world.with_entries() == set(STAYS)
    assert await world.kept() == set(STAYS)


async def test_emptied_ledger_refuses_its_old_writer_for_ever(world: World) -> None:
    bench = world.bench
    await world.kept()
    assert await bench.add(1, 3) == FENCED
    world.open()
    assert await bench.add(1, 3) == FENCED
    assert await bench.read(1, -1) == (NO_ENTRY, b"")


async def test_emptied_ledger_takes_entries_of_re_replication(world: World) -> None:
    """It takes them at once, before a checkpoint, and keeps them."""
    bench = world.bench
    await world.kept()
    world.store.nodes[PATH + ledger_path(1)] = closed((HERE, C))
    assert [await bench.add(1, entry, b"again", recovery=True) for entry in range(3)] == [OK] * 3
    assert await bench.start_add(1, 3, key=b"?" * 20, recovery=True) == UNAUTHORIZED
    assert await bench.read(1, 2) == (OK, b"again")
    await bench.checkpoint()
    assert await bench.read(1, -1) == (OK, b"again")
    assert 1 in await world.kept()
    world.open()
    assert [await bench.read(1, entry) for entry in range(3)] == [(OK, b"again")] * 3
    assert await bench.add(1, 3) == FENCED


async def test_entries_added_during_the_removal_stay(world: World) -> None:
    """The entries come before the checkpoint that takes the old rows out."""
    bench, bookie = world.bench, world.bookie
    done: list[bool] = []
    bench.file_system.may_sync.clear()
    bookie.checkpoints.start()
    answered = bench.start_add(777, 0)
    bookie.removals.empty_all([4], lambda: done.append(True))
    bench.file_system.may_sync.set()
    assert await answered == OK
    await bench.until(
        lambda: bookie.state.ledgers.by_id[4].fenced and not bookie.state.ledgers.by_id[4].needs_logs
    )
    assert await bench.add(4, 1, b"new", recovery=True) == OK
    await bench.until(lambda: bool(done))
    await bench.checkpoint()
    assert await bench.read(4, 1) == (OK, b"new")
    assert await bench.read(4, 0) == (NO_ENTRY, b"")
    assert await bench.read(4, -1) == (OK, b"new")


async def test_read_during_the_removal_is_answered_no_entry(world: World) -> None:
    """One read is loading and others wait for it; each is answered "no entry", not "no ledger"."""
    bench, done = world.bench, []
    world.open()
    bench.file_system.may_read.clear()
    before = bench.file_system.reads
    reads = [bench.start_read(4, entry) for entry in (0, 2, 1)]
    await bench.until(lambda: bench.file_system.reads > before)
    world.bookie.removals.empty_all([4], lambda: done.append(True))
    await bench.until(lambda: bool(done))
    bench.file_system.may_read.set()
    assert {(await read)[0] for read in reads} <= {OK, NO_ENTRY}
    assert (await reads[0])[0] == OK
    assert await bench.read(4, 1) == (NO_ENTRY, b"")


async def test_emptied_ledgers_free_their_entry_logs(bench: Bench) -> None:
    world = World(bench)
    for ledger_id in ELSEWHERE:
        await bench.add_all(ledger_id, range(3))
    world.open()
    directory = bench.directory / "ledgers/current"
    assert log_ids(directory)
    await compact(bench)
    assert not log_ids(directory)
    assert world.bookie.stats.collection.reclaimed_by_deletion > 0
    assert world.bookie.state.storages.all[0].locations.count() == 0


async def test_emptied_ledger_that_is_deleted_refuses_all_adds(world: World) -> None:
    bench = world.bench
    await world.kept()
    world.store.remove(1)
    await compact(bench)
    assert await bench.read(1, 0) == (NO_LEDGER, b"")
    assert await bench.add(1, 0, recovery=True) == FENCED


@pytest.mark.parametrize("call", ["sync", "get", "create"])
async def test_round_keeps_entries_when_the_store_fails(world: World, call: str) -> None:
    world.store.fails = {call}
    assert await world.kept() == set(EVERY)
    world.store.fails = set()
    assert await world.kept() == set(STAYS)


@pytest.mark.parametrize("node", ["INSTANCEID", "LAYOUT"])
async def test_round_keeps_entries_for_another_cluster(world: World, node: str) -> None:
    world.store.nodes[f"/ledgers/{node}"] = b"another"
    assert await world.kept() == set(EVERY)


async def test_round_keeps_entries_without_a_connection(world: World) -> None:
    world.store.connected = False
    assert await world.kept() == set(EVERY)


async def test_round_keeps_a_ledger_whose_lock_is_taken(world: World) -> None:
    lock = "/ledgers/underreplication/locks/urL0000000001"
    world.store.nodes[lock] = b"another bookie"
    assert await world.kept() == {*STAYS, 1}
    assert world.store.nodes[lock] == b"another bookie"
    del world.store.nodes[lock]
    assert await world.kept() == set(STAYS)


async def test_round_keeps_a_ledger_re_replicated_before_the_lock(world: World) -> None:
    """Re-replication was done between the first look and the lock."""
    create = world.store.create

    def create_and_replicate(path: str, value: bytes, **options: bool) -> None:
        world.store.nodes[PATH + ledger_path(2)] = closed((HERE, B))
        create(path, value, **options)

    world.store.create = create_and_replicate  # type: ignore[method-assign]
    assert await world.kept() == {*STAYS, 2}


async def test_round_keeps_a_ledger_with_entries_in_the_write_cache(world: World) -> None:
    """Re-replication may be copying them here before it changes the metadata."""
    await world.bench.add_all(1, [7])
    assert await world.kept() == {*STAYS, 1}


async def test_round_keeps_a_ledger_whose_fence_is_not_durable(world: World) -> None:
    """The journal's disk fails while the fences are written."""
    bench = world.bench
    done: list[bool] = []
    bench.file_system.fails["write"] = errno.EIO
    bench.file_system.fails_once = True
    world.bookie.removals.empty_all([1, 2], lambda: done.append(True))
    await bench.until(lambda: bool(done))
    assert await world.with_entries() == set(EVERY)


async def test_round_keeps_a_ledger_without_a_known_key(world: World) -> None:
    done: list[bool] = []
    world.bookie.state.ledgers.by_id[1].key_open = True
    world.bookie.removals.empty_all([1, 2], lambda: done.append(True))
    await world.bench.until(lambda: bool(done))
    assert await world.with_entries() == set(EVERY) - {2}


@pytest.mark.parametrize("wait_s", [0.0, 3600.0])
async def test_look_waits_for_its_interval(world: World, wait_s: float) -> None:
    looked = world.bookie.upkeep.collector._over_replicated
    assert looked is not None
    looked._wait_s = wait_s
    assert await world.kept() == set(EVERY)
