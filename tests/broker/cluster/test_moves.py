"""The record of moved bundles: which reasons it tells, and how long it stays."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import SessionState
from broker.cluster import moves
from broker.cluster.moves import FORGOTTEN_MS, KEPT, LOOKUP, MOVES, UNLOADED, Moves, explained
from broker.service.topics.topic_ownership import Move, MoveKind
from tests.broker.cluster.support import NOW_MS, Node, cluster, settle
from tests.broker.cluster.test_divisions import HALVES, divide
from tests.broker.cluster.test_ownership import BUNDLE, owned

TAKEN, GIVEN_UP, LOST = MoveKind.TAKEN, MoveKind.GIVEN_UP, MoveKind.LOST


async def nothing() -> None:
    """Closes no topic."""


async def brokers_with_a_clock() -> list[Node]:
    """Two brokers, whose common clock shows another millisecond at each look."""
    nodes = await cluster(2)
    now = itertools.count(NOW_MS)
    for node in nodes:
        node.ownership.moves._wall_ms = lambda: next(now)
    return nodes


async def told(node: Node) -> list[tuple[str, str, str, str]]:
    """Bundle, broker, kind and reason of each move that a broker tells, oldest first."""
    await node.ownership.tick()
    found = (await node.ownership.seen()).moves
    return [(one.bundle, one.broker, str(one.kind), one.why) for one in reversed(found)]


async def test_unload_and_division_are_told_by_every_broker() -> None:
    nodes = await brokers_with_a_clock()
    await owned(nodes[0])
    await nodes[0].ownership.unload(BUNDLE)
    await owned(nodes[0])
    await divide(nodes[0])
    await nodes[0].ownership.tick()
    first = nodes[0].addresses.broker_id
    assert await told(nodes[1]) == [
        (BUNDLE, first, "taken", LOOKUP),
        (BUNDLE, first, "given up", "it was unloaded"),
        (BUNDLE, first, "taken", f"{first} had given it up: it was unloaded"),
        *((half, first, "taken", "the bundle was divided") for half in HALVES),
        (BUNDLE, first, "given up", "the bundle was divided"),
    ]


async def test_bundle_that_was_moved_for_balance_has_the_reason_of_the_leader() -> None:
    why = "a hands it over to b: it used 90 %"
    moves = [
        Move(1, BUNDLE, "a", TAKEN, LOOKUP),
        Move(2, BUNDLE, "leader", MoveKind.DECIDED, why),
        Move(3, BUNDLE, "a", GIVEN_UP, UNLOADED),
        Move(4, BUNDLE, "b", TAKEN, LOOKUP),
        Move(5, BUNDLE, "b", GIVEN_UP, UNLOADED),
    ]
    assert [move.why for move in reversed(explained(moves))] == [
        LOOKUP,
        why,
        why,
        f"a had given it up: {why}",
        UNLOADED,
    ]


async def test_bundle_that_many_lookups_take_at_once_is_one_move() -> None:
    node, _ = await brokers_with_a_clock()
    await asyncio.gather(*(owned(node) for _ in range(5)))
    assert await told(node) == [(BUNDLE, node.addresses.broker_id, "taken", LOOKUP)]
    assert node.ownership.counts.moves[TAKEN] == 1


async def test_bundle_of_a_killed_broker_is_taken_because_its_owner_was_gone() -> None:
    nodes = await brokers_with_a_clock()
    await owned(nodes[0])
    await nodes[0].ownership.tick()
    await nodes[0].kill()
    await settle(nodes[1])
    await owned(nodes[1])
    first, second = (node.addresses.broker_id for node in nodes)
    assert (await told(nodes[1]))[-1] == (BUNDLE, second, "taken", f"{first} had it, and was gone")


async def test_broker_that_stops_tells_so_before_its_session_ends() -> None:
    nodes = await brokers_with_a_clock()
    await owned(nodes[0])
    await nodes[0].ownership.leave()
    await settle(*nodes)
    await owned(nodes[1])
    first, second = (node.addresses.broker_id for node in nodes)
    assert (await told(nodes[1]))[-2:] == [
        (BUNDLE, first, "given up", "the broker stopped"),
        (BUNDLE, second, "taken", f"{first} had given it up: the broker stopped"),
    ]


async def test_bundle_that_another_broker_took_meanwhile_is_lost() -> None:
    nodes = await brokers_with_a_clock()
    await owned(nodes[0])
    await nodes[0].ownership.tick()
    # The session ends; the broker learns of it when it is back.
    key = f"/namespace/{BUNDLE}"
    await nodes[1].store.delete(key)
    assert await nodes[1].ownership.leases.acquire(BUNDLE) == nodes[1].addresses
    nodes[0].ownership._told(SessionState.LOST)
    nodes[0].ownership._told(SessionState.RE_ESTABLISHED)
    await settle(*nodes)
    first = nodes[0].addresses.broker_id
    found = await told(nodes[0])
    assert (BUNDLE, first, "lost", "another broker took it after the end of a session") in found
    counts = nodes[0].ownership.counts
    assert (counts.sessions_ended, counts.leases, counts.moves[TAKEN], counts.moves[LOST]) == (2, 0, 1, 1)


async def test_record_is_kept_over_a_restart_and_has_the_last_moves() -> None:
    store = MemoryMetadataStore()
    now = iter(range(1000))
    before = Moves(store, lambda: next(now))
    await before.open("b")
    for number in range(KEPT + 5):
        before.note(TAKEN, f"t/n/{number}", LOOKUP)
    await before.write()
    after = Moves(store, lambda: next(now))
    await after.open("b")
    assert [move.bundle for move in await after.all()] == [f"t/n/{number}" for number in range(5, KEPT + 5)]
    other = Moves(store, lambda: 0)
    await other.open("c")
    assert await other.all() == await after.all()


async def test_record_is_written_only_when_it_has_changed() -> None:
    store = MemoryMetadataStore()
    record = Moves(store, lambda: 0)
    await record.open("b")
    await record.write()
    assert await store.get(f"{MOVES}/b") is None
    record.note(TAKEN, "t/n/r", LOOKUP)
    await record.write()
    await record.write()
    node = await store.get(f"{MOVES}/b")
    assert node is not None
    assert node.version == 0


async def test_leader_forgets_brokers_that_have_been_away_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "FORGET_EVERY_MS", 0)
    store = MemoryMetadataStore()
    now_ms = 0
    for name in ("away", "there"):
        record = Moves(store, lambda: now_ms)
        await record.open(name)
        record.note(TAKEN, "t/n/r", LOOKUP)
        await record.write()
    now_ms = FORGOTTEN_MS
    await record.forget({"there"})
    assert sorted(await store.children(MOVES)) == ["away", "there"]
    now_ms += 1
    await record.forget({"there"})
    assert await store.children(MOVES) == ["there"]


@pytest.mark.parametrize("value", [b"{", b"7", b"[[1]]", b'[[1,"b","flown","w"]]', b'{"a":1}'])
async def test_damaged_record_of_another_broker_is_left_out(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryMetadataStore()
    await store.put(f"{MOVES}/strange", value)
    record = Moves(store, lambda: 0)
    await record.open("b")
    assert await record.all() == []
    assert "the moves of broker strange cannot be read" in caplog.text


def test_own_bundle_of_a_broker_that_was_killed_and_came_back() -> None:
    found = [Move(1, "t/n/r", "b", TAKEN, LOOKUP), Move(2, "t/n/r", "b", TAKEN, LOOKUP)]
    assert explained(found)[0].why == "this broker had it before, and was gone"


def test_loser_that_learns_late_is_not_the_former_owner() -> None:
    found = [
        Move(1, "t/n/r", "a", TAKEN, LOOKUP),
        Move(2, "t/n/r", "b", TAKEN, LOOKUP),
        Move(3, "t/n/r", "a", LOST, "late"),
        Move(4, "t/n/r", "c", TAKEN, LOOKUP),
    ]
    assert explained(found)[0].why == "b had it, and was gone"
