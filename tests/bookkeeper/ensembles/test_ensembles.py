"""Ledgers on several bookies: write sets, confirming by the ack quorum, and ensemble changes."""

from __future__ import annotations

import pytest

from bookkeeper.ensembles.bookies import BookieSet, OneBookie
from bookkeeper.ensembles.own_ledger import read_metadata
from bookkeeper.ensembles.placement import is_covered, proves_absence, write_set
from bookkeeper.ensembles.racks import Affinity, Racks
from bookkeeper.ensembles.settings import Copies
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.errors import BrokerError, LedgerFenced, NotEnoughBookies
from protocol.ledger_metadata import LedgerSegment, LedgerState
from tests.bookkeeper.ensembles.ensemble_fakes import FENCED, IO_ERROR, LEDGER, OK, Cluster, turns

NOT_ENOUGH = -6


def test_write_set_is_the_next_positions_in_the_ring() -> None:
    assert [write_set(entry, 3, 2) for entry in range(4)] == [(0, 1), (1, 2), (2, 0), (0, 1)]
    assert write_set(10**12 + 1, 4, 4) == (1, 2, 3, 0)


@pytest.mark.parametrize(
    ("answered", "write_quorum", "ack_quorum", "covered"),
    [
        ("yyy", 3, 2, True),
        ("yyn", 3, 2, True),
        ("ynn", 3, 2, False),
        ("ynn", 2, 2, False),
        ("yyn", 2, 2, True),
        ("ynyn", 2, 2, True),
        ("yynn", 2, 2, False),
        ("n", 1, 1, False),
        ("y", 1, 1, True),
        ("yyn", 3, 1, False),
    ],
)
def test_ledger_is_covered_when_no_write_set_has_an_ack_quorum_left(
    answered: str, write_quorum: int, ack_quorum: int, covered: bool
) -> None:
    assert is_covered([bookie == "y" for bookie in answered], write_quorum, ack_quorum) is covered


def test_entry_is_absent_when_it_cannot_be_on_an_ack_quorum() -> None:
    assert [proves_absence(count, 3, 2) for count in range(4)] == [False, False, True, True]
    assert [proves_absence(count, 3, 3) for count in range(3)] == [False, True, True]
    assert not proves_absence(0, 1, 1)


async def test_entries_are_striped_and_confirmed_in_order() -> None:
    cluster = Cluster(3, LedgerSettings(3, 2, 2))
    await cluster.begin()
    cluster.bookies[1].held = True
    cluster.add(0, 1, 2)
    await turns()
    assert cluster.answers == []  # entry 2 has its quorum and waits for the others
    cluster.bookies[1].release()
    await turns()
    assert cluster.answers == [(0, OK), (1, OK), (2, OK)]
    assert [bookie.has for bookie in cluster.bookies] == [[0, 2], [0, 1], [1, 2]]


async def test_entry_is_confirmed_without_a_slow_bookie() -> None:
    cluster = Cluster(3, LedgerSettings(3, 3, 2))
    await cluster.begin()
    cluster.bookies[2].held = True
    cluster.add(0, 1)
    await turns()
    assert cluster.answers == [(0, OK), (1, OK)]
    cluster.bookies[2].release()
    await turns()
    assert [bookie.has for bookie in cluster.bookies] == [[0, 1]] * 3


async def test_striped_run_is_answered_once_when_its_last_entry_is_confirmed() -> None:
    cluster = Cluster(3, LedgerSettings(3, 2, 2))
    await cluster.begin()
    cluster.bookies[1].held = True
    cluster.add_run(range(5))
    cluster.add_run(range(5, 6))
    await turns()
    assert cluster.answers == []
    cluster.bookies[1].release()
    await turns()
    assert cluster.answers == [(0, OK), (5, OK)]
    assert [bookie.has for bookie in cluster.bookies] == [[0, 2, 3, 5], [0, 1, 3, 4], [1, 2, 4, 5]]


async def test_run_moves_as_a_whole_to_the_bookie_that_replaces_a_failed_one() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 3))
    own = await cluster.begin()
    cluster.add(0)
    await turns()
    cluster.bookies[1].rc = IO_ERROR
    cluster.add_run(range(1, 4))
    cluster.add_run(range(4, 6))
    await turns()
    assert cluster.answers == [(0, OK), (1, OK), (4, OK)]
    assert cluster.bookies[3].has == [1, 2, 3, 4, 5]
    assert own.metadata.segments[-1].first_entry_id == 1


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
async def test_fenced_writer_fails_each_run_once(quorums: tuple[int, int, int]) -> None:
    cluster = Cluster(3, LedgerSettings(*quorums))
    await cluster.begin()
    cluster.add_run(range(2))
    await turns()
    for bookie in cluster.bookies:
        bookie.rc = FENCED
    cluster.add_run(range(2, 6))
    cluster.add_run(range(6, 9))
    await turns()
    assert cluster.answers == [(0, OK), (2, FENCED), (6, FENCED)]


async def test_bookie_failure_after_the_close_changes_nothing() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    cluster.bookies[2].held = True
    cluster.add(0)
    await turns()
    await own.close(0, 6)
    cluster.bookies[2].fail_held()
    await turns()
    assert isinstance(cluster.set, BookieSet)
    assert not cluster.set._errors


async def test_failed_bookie_is_replaced() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    cluster.add(0)
    await turns()
    cluster.bookies[1].rc = IO_ERROR
    cluster.bookies[0].held = cluster.bookies[2].held = True
    cluster.add(1, 2)
    await turns()
    b0, b1, b2, b3 = cluster.names
    assert own.metadata.segments == (LedgerSegment((b0, b1, b2)), LedgerSegment((b0, b3, b2), 1))
    found = await read_metadata(cluster.metadata, LEDGER)
    assert found is not None
    assert found[0] == own.metadata
    assert cluster.bookies[3].has == [1, 2]
    assert cluster.answers == [(0, OK)]
    cluster.bookies[0].release()
    await turns()
    assert cluster.answers == [(0, OK), (1, OK), (2, OK)]
    assert await cluster.read(0, 0) == [b"body 0"]
    assert await cluster.read(1, 2) == [b"body 1", b"body 2"]


async def test_segment_without_confirmed_entries_is_replaced() -> None:
    cluster = Cluster(3, LedgerSettings(2, 2, 2))
    own = await cluster.begin()
    cluster.bookies[0].rc = IO_ERROR
    cluster.add(0)
    await turns()
    assert [(segment.first_entry_id, segment.members) for segment in own.metadata.segments] == [
        (0, (cluster.names[2], cluster.names[1]))
    ]
    assert cluster.answers == [(0, OK)]


async def test_earlier_answers_of_a_failed_bookie_do_not_count() -> None:
    cluster = Cluster(3, LedgerSettings(2, 2, 2))
    await cluster.begin()
    cluster.bookies[1].held = cluster.bookies[2].held = True
    cluster.add(0)
    await turns()  # b0 has it
    cluster.bookies[0].rc = IO_ERROR
    cluster.add(1)
    await turns()
    cluster.bookies[1].release()
    await turns()
    assert cluster.answers == []  # b0's answer for entry 0 is not one of two
    cluster.bookies[2].release()
    await turns()
    assert cluster.answers == [(0, OK), (1, OK)]


async def test_late_answers_of_a_replaced_bookie_do_not_count() -> None:
    cluster = Cluster(3, LedgerSettings(2, 2, 2))
    await cluster.begin()
    cluster.bookies[0].held = cluster.bookies[2].held = True
    cluster.add(0)  # b1 has it, b0 is slow
    await turns()
    cluster.bookies[0].rc = IO_ERROR
    cluster.add(1)  # b2 takes the place of b0
    await turns()
    cluster.bookies[0].release()
    await turns()
    assert cluster.bookies[0].has == [0]
    assert cluster.answers == []  # readers will not look for it on b0
    cluster.bookies[2].release()
    await turns()
    assert cluster.answers == [(0, OK), (1, OK)]


async def test_confirming_waits_until_the_new_ensemble_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    stored: list[int] = []
    plain_put = cluster.metadata.put

    async def put(key: str, value: bytes, expected: int | None = None) -> int:
        await turns(50)
        stored.append(len(cluster.answers))
        return await plain_put(key, value, expected)

    monkeypatch.setattr(cluster.metadata, "put", put)
    cluster.bookies[1].rc = IO_ERROR
    cluster.add(0, 1)
    await turns(30)
    assert cluster.answers == []  # b0 and b2 have both entries
    await turns(60)
    assert stored == [0]
    assert len(own.metadata.segments) == 1
    assert cluster.answers == [(0, OK), (1, OK)]


async def test_adds_fail_when_no_bookie_can_replace_a_failed_one() -> None:
    settings = LedgerSettings(3, 2, 2, opportunistic_striping=True)
    cluster = Cluster(3, settings)
    own = await cluster.begin()
    cluster.add(0)
    await turns()
    cluster.bookies[1].rc = IO_ERROR
    cluster.bookies[1].reachable = False
    cluster.add(1, 2)
    await turns()
    assert cluster.answers == [(0, OK), (1, NOT_ENOUGH), (2, NOT_ENOUGH)]
    cluster.add(3)
    await turns()
    assert cluster.answers[-1] == (3, NOT_ENOUGH)
    await own.close(0, 6)
    smaller = await cluster.ledgers.create(LEDGER + 1, {})
    assert sorted(smaller.metadata.segments[0].members) == [cluster.names[0], cluster.names[2]]
    assert smaller.metadata.ensemble_size == 2
    with pytest.raises(NotEnoughBookies, match=r"3 bookies wanted, 2 fit.*reachable are b0:1, b2:1"):
        await cluster.restarted(LedgerSettings(3, 2, 2)).create(LEDGER + 2, {})


async def test_ledger_gets_the_copies_that_a_policy_wants() -> None:
    cluster = Cluster(3, LedgerSettings(3, 2, 2))
    own, _ = await cluster.ledgers.create_with(LEDGER, {}, (), Copies(2, 1, 1))
    metadata = own.metadata
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 1, 1)
    assert len(metadata.segments[0].members) == 2
    usual = await cluster.ledgers.create(LEDGER + 1, {})
    assert usual.metadata.write_quorum == 2
    with pytest.raises(NotEnoughBookies):
        await cluster.ledgers.create_with(LEDGER + 2, {}, (), Copies(5, 5, 5))


async def test_failing_bookies_do_not_replace_each_other_for_ever() -> None:
    cluster = Cluster(4, LedgerSettings(2, 2, 2))
    await cluster.begin()
    for bookie in cluster.bookies[1:]:
        bookie.rc = 105
    cluster.add(0)
    await turns(200)
    assert cluster.answers == [(0, NOT_ENOUGH)]


async def test_recovery_by_a_one_bookie_broker_asks_every_bookie() -> None:
    cluster = Cluster(3, LedgerSettings(3, 3, 2))
    await cluster.begin()
    cluster.bookies[0].held = True
    await cluster.fill(10)
    for connect in (None, dict(zip(cluster.names, cluster.bookies, strict=True)).__getitem__):
        cluster.set = OneBookie(cluster.names[0], cluster.bookies[0], connect)
        cluster.bookies[0].held = False
        recovering = cluster.restarted(LedgerSettings(1, 1, 1)).recover(LEDGER)
        if connect is None:
            with pytest.raises(BrokerError):
                await recovering
            found = await read_metadata(cluster.metadata, LEDGER)
            assert found is not None
            assert found[0].state is not LedgerState.CLOSED
        else:
            closed = await recovering
            assert closed is not None
            assert closed.last_entry_id == 9


async def test_fenced_writer_fails_every_add() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    await cluster.fill(2)
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 1, 12)
    cluster.add(2)
    await turns()
    assert cluster.answers[-1] == (2, FENCED)
    with pytest.raises(LedgerFenced):
        await own.close(2, 18)


async def test_ensemble_change_fails_after_a_take_over() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    await cluster.fill(1)
    await cluster.restarted(LedgerSettings()).recover(LEDGER)
    cluster.bookies[0].rc = IO_ERROR
    for bookie in cluster.bookies[1:]:
        bookie.held = True
    cluster.add(1)
    await turns()
    assert cluster.answers[-1] == (1, FENCED)
    with pytest.raises(LedgerFenced):
        await own.change_ensemble(1, tuple(cluster.names[1:]))


async def test_recovery_writes_back_entries_behind_the_lac() -> None:
    cluster = Cluster(3, LedgerSettings(3, 3, 2))
    await cluster.begin()
    await cluster.fill(3)
    cluster.bookies[2].held = True
    cluster.add(3)
    await turns()
    assert cluster.answers[-1] == (3, OK)
    cluster.bookies[2].held = False
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert (closed.last_entry_id, closed.length) == (3, 4 * len(b"body 0"))
    await turns()
    assert [bookie.has for bookie in cluster.bookies] == [[0, 1, 2, 3]] * 3


async def test_recovery_stores_its_ensemble_change_with_the_end() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 2))
    await cluster.begin()
    await cluster.fill(3)
    cluster.bookies[0].rc = IO_ERROR
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert closed.last_entry_id == 2
    assert closed.segments[-1].members == (cluster.names[3], *cluster.names[1:3])
    assert cluster.bookies[3].has == list(range(closed.segments[-1].first_entry_id, 3))
    ledgers = cluster.restarted(LedgerSettings())
    assert [await cluster.read(entry, entry, ledgers) for entry in range(3)] == [
        [b"body %d" % entry] for entry in range(3)
    ]


async def test_recovery_leaves_a_closed_ledger_unchanged() -> None:
    cluster = Cluster(3, LedgerSettings(3, 3, 2))
    own = await cluster.begin()
    await cluster.fill(2)
    await own.close(1, 12)
    assert await cluster.restarted(LedgerSettings()).recover(LEDGER) == own.metadata
    assert not any(bookie._ledgers[LEDGER].fenced for bookie in cluster.bookies)
    assert await cluster.restarted(LedgerSettings()).recover(LEDGER + 1) is None


async def test_bookies_are_chosen_in_turn_and_quarantined_after_failures() -> None:
    cluster = Cluster(4, LedgerSettings())
    a, b, c, d = cluster.names
    assert [cluster.set.choose(2) for _ in range(3)] == [(a, b), (b, c), (c, d)]
    cluster.set.failed(b)
    cluster.now_ns += 61 * 10**9
    cluster.set.failed(b)  # outside of the first failure's interval
    assert any(b in cluster.set.choose(3) for _ in range(4))
    assert cluster.set.choose(1, avoid=(a, c, d)) == (b,)
    cluster.set.failed(b)
    assert all(b not in cluster.set.choose(3) for _ in range(8))
    assert b in cluster.set.choose(4)  # a bookie in quarantine is better than none
    cluster.now_ns += 600 * 10**9
    assert any(b in cluster.set.choose(3) for _ in range(4))


async def racked() -> tuple[Cluster, Racks, Affinity]:
    """Two bookies of group `g` in each of two racks, and two bookies of another group."""
    cluster = Cluster(6, LedgerSettings(2, 2, 2))
    a, b, c, d, e, f = cluster.names
    racks: Racks = {
        "g": {a: {"rack": "r1"}, b: {"rack": "r1"}, d: {"rack": "r2"}, f: {"rack": "r2"}},
        "h": {c: {}, e: {}},
    }
    await cluster.ledgers.racks.change(lambda _: racks)
    affinity = Affinity.of("g", "")
    assert affinity is not None
    return cluster, racks, affinity


async def test_new_ledger_obeys_groups_and_racks_and_each_bookie_gets_its_share() -> None:
    cluster, racks, affinity = await racked()
    chosen = set()
    for number in range(12):
        own = await cluster.ledgers.create(LEDGER + number, affinity.custom())
        members = own.metadata.segments[-1].members
        chosen |= set(members)
        assert len({racks["g"][name]["rack"] for name in members}) == 2
    assert chosen == set(racks["g"])
    await cluster.ledgers.racks.change(lambda _: {"h": {**racks["h"], **racks["g"]}})
    with pytest.raises(NotEnoughBookies):
        await cluster.ledgers.create(LEDGER + 99, affinity.custom())


@pytest.mark.parametrize("turn", range(6))
async def test_failed_bookie_is_replaced_by_one_of_its_group_in_its_rack(turn: int) -> None:
    cluster, racks, affinity = await racked()
    for _ in range(turn):
        cluster.set.choose(1)
    own = await cluster.ledgers.create(LEDGER, affinity.custom())
    cluster._adds = cluster.ledgers.writer(own)
    failed, other = own.metadata.segments[-1].members
    cluster.bookies[cluster.names.index(failed)].rc = IO_ERROR
    cluster.add(0)
    await turns()
    fresh, stays = own.metadata.segments[-1].members
    assert (stays, racks["g"][fresh]["rack"]) == (other, racks["g"][failed]["rack"])
    assert fresh != failed
