"""Lost entries are found and delivered again: each once, in order, and nothing else is touched.

An entry is lost by an error in the middle of a dispatch: the test lets the delivery to one consumer fail, as an error in any
of the parts below it would.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.managed_ledger import single_entry
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.redelivery_reads import RedeliveryReads
from broker.service.lifecycle import hole_rounds
from broker.service.lifecycle.hole_rounds import joined
from broker.service.policies import table
from broker.service.subscriptions.dispatch.places import Place
from broker.service.subscriptions.hole_watch import LOOKS_KEPT, HoleLook, passed_before, read_between, thinned
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import EntryDamaged, PersistenceError
from foundation.model.position import Position
from foundation.model.range_set import EntryRange
from foundation.value import Json
from tests.broker.service.lifecycle.hole_play import PERIOD_S, Rounds, play
from tests.fakes.crowd import Crowd
from tests.fakes.ports import FakeConsumerPort
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, TOPIC, Stage


def small(ledger_id: int) -> int:
    """Average bytes of an entry."""
    return 100


async def test_lost_entries_are_delivered_again_in_order_after_the_period() -> None:
    one = await play()
    assert one.got() == [4, 5, 6, 7, 8, 9]
    await one.acknowledge(*one.got())
    await one.rounds.after(PERIOD_S - 1)
    assert len(one.got()) == 6, "they are not old enough"
    await one.rounds.after(62)
    assert one.got()[6:] == [0, 1, 2, 3]
    assert one.port.counts[6:] == [0, 0, 0, 0], "no consumer has asked for them again"
    await one.acknowledge(0, 1, 2, 3)
    assert one.subscription.cursor.backlog == 0
    watch = one.subscription.holes
    assert watch is not None
    assert (watch.redelivered, watch.last_ms > 0) == (4, True)
    await one.rounds.after(400)
    assert len(one.got()) == 10, "nothing acknowledged is delivered again"
    assert watch.looks == []


async def test_silent_subscription_has_no_watch() -> None:
    stage = Stage(hole_period_s=PERIOD_S)
    topic = await stage.open()
    subscription, _, _ = await stage.consume(topic, SHARED, permits=100)
    rounds = Rounds(stage)
    await rounds.after(2 * hole_rounds.ROUND_S_MAX)
    assert subscription.holes is None
    await stage.publish(topic, 1)
    await rounds.after(2 * hole_rounds.ROUND_S_MAX)
    assert subscription.holes is not None


async def test_entry_that_is_pending_at_a_consumer_stays_there() -> None:
    one = await play()
    await one.acknowledge(5, 7, 9)
    await one.rounds.after(400)
    assert one.got()[6:] == [0, 1, 2, 3], "4, 6 and 8 are with the consumer"
    await one.rounds.after(400)
    assert len(one.got()) == 10


async def test_late_acknowledgement_wins_over_the_redelivery() -> None:
    one = await play()
    await one.rounds.after(PERIOD_S - 1)
    # Any consumer may acknowledge any entry, so one may come for a lost entry at the last moment.
    await one.acknowledge(1, 3)
    await one.rounds.after(100)
    assert one.got()[6:] == [0, 2]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_acknowledgement_while_the_group_is_read_wins(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await play(kind)
    real = ManagedLedger.read_readable

    async def acknowledged_meanwhile(self: ManagedLedger, wanted: EntryRange) -> Any:
        entries = await real(self, wanted)
        one.subscription.acknowledge(one.consumer, [(one.ledger_id, 1)])
        return entries

    monkeypatch.setattr(ManagedLedger, "read_readable", acknowledged_meanwhile)
    lost = [entry for entry in range(10) if entry not in one.got()]
    before = len(one.got())
    await one.rounds.after(400)
    assert 1 in lost
    assert one.got()[before:] == [entry for entry in lost if entry != 1]


async def test_lost_entries_of_a_key_come_before_newer_ones_that_wait() -> None:
    one = await play(KEY_SHARED)
    lost = [entry for entry in range(10) if entry not in one.got()]
    assert lost
    await one.acknowledge(*one.got())
    one.consumer.permits = 0
    await one.stage.publish(one.topic, keys=list("abc"))
    before = len(one.got())
    await one.rounds.after(400)
    one.subscription.flow(one.consumer, 100)
    await one.stage.settle()
    later = one.got()[before:]
    assert sorted(later) == [*lost, 10, 11, 12]
    keys = {entry.entry_id: entry.facts.key for entry in one.port.got if entry.facts}
    for key in set(keys.values()):
        of_key = [entry for entry in later if keys[entry] == key]
        assert of_key == sorted(of_key)


async def test_search_goes_on_with_groups_second_by_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_rounds, "GROUP_ENTRIES", 3)
    one = await play()
    await one.rounds.after(PERIOD_S)
    began = len(one.got())
    while len(one.got()) == began:
        await one.rounds.after(1)
    assert one.got()[began:] == [0, 1, 2]
    await one.rounds.after(1)
    assert one.got()[began:] == [0, 1, 2, 3]


async def test_group_of_large_entries_ends_early_and_the_search_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await play()
    began = len(one.got())
    # Each of them is larger, so each read is of one entry and each group too.
    monkeypatch.setattr(hole_rounds, "GROUP_BYTES", 1)
    while len(one.got()) == began:
        await one.rounds.after(1)
    for count in (1, 2, 3, 4):
        assert one.got()[began:] == [0, 1, 2, 3][:count]
        await one.rounds.after(1)
    await one.rounds.after(100)
    assert one.got()[began:] == [0, 1, 2, 3]


async def test_search_ends_when_its_policy_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_rounds, "GROUP_ENTRIES", 1)
    one = await play()
    began = len(one.got())
    while len(one.got()) == began:
        await one.rounds.after(1)
    value: Json = {"enabled": False, "periodSeconds": PERIOD_S}
    await one.stage.run(one.stage.namespaces.set_topic_policy(TOPIC, table.HOLE_REDELIVERY.topic_name, value))
    await one.rounds.after(10)
    assert one.got()[began:] == [0]


async def test_positions_wait_in_the_log_while_consumers_take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_rounds, "GROUP_ENTRIES", 2)
    one = await play()
    one.consumer.permits = 0
    await one.rounds.after(400)
    assert one.subscription.waiting_for_redelivery == 2
    one.subscription.flow(one.consumer, 100)
    await one.rounds.after(5)
    assert one.got()[6:] == [0, 1, 2, 3]


async def test_holes_between_acknowledged_entries_are_read_once_and_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await play()
    await one.acknowledge(1)
    real, reads = ManagedLedger.read_readable, list[EntryRange]()

    async def counted(self: ManagedLedger, wanted: EntryRange) -> Any:
        reads.append(wanted)
        return await real(self, wanted)

    def refused(*_: Any) -> None:
        raise AssertionError("a lost entry is read a second time")

    monkeypatch.setattr(ManagedLedger, "read_readable", counted)
    monkeypatch.setattr(RedeliveryReads, "request", refused)
    await one.rounds.after(400)
    assert one.got()[6:] == [0, 2, 3]
    assert reads == [EntryRange(one.ledger_id, 0, 3)]


async def test_lost_entries_come_one_by_one_when_few_are_asked_for() -> None:
    one = await play()
    one.consumer.permits = 1
    await one.rounds.after(400)
    assert one.got()[6:] == [0]
    for _ in range(3):
        one.subscription.flow(one.consumer, 1)
        await one.stage.settle()
    assert one.got()[6:] == [0, 1, 2, 3]


async def test_policy_of_a_topic_outranks_the_keys() -> None:
    one = await play(hole_redelivery=False)
    await one.rounds.after(400)
    assert len(one.got()) == 6
    value: Json = {"enabled": True, "periodSeconds": 10}
    await one.stage.run(one.stage.namespaces.set_topic_policy(TOPIC, table.HOLE_REDELIVERY.topic_name, value))
    await one.rounds.after(hole_rounds.ROUND_S_MAX + 1)
    assert one.got()[6:] == [0, 1, 2, 3]


async def test_consumer_that_comes_after_all_have_left_gets_each_entry_once() -> None:
    one = await play()
    await one.rounds.after(PERIOD_S - 10)
    one.subscription.remove_consumer(one.consumer)
    _, _, port = await one.stage.consume(one.topic, SHARED, permits=1000)
    await one.rounds.after(400)
    assert [entry.entry_id for entry in port.got] == list(range(10))


async def test_exclusive_subscription_is_left_alone() -> None:
    stage = Stage(hole_period_s=1)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, EXCLUSIVE, permits=1000)
    await stage.publish(topic, 5)
    ledger_id = topic.ledger.ledgers.current.ledger_id
    subscription.acknowledge(consumer, [(ledger_id, 3)])
    await Rounds(stage).after(200)
    assert len(port.got) == 5
    assert subscription.holes is None


async def test_delayed_entry_that_is_lost_waits_for_its_time() -> None:
    one = await play()
    one.port.failures = 2
    # Lost in the run that would have found its delivery time: the error comes before the topic knows of it.
    hold_back = type(one.topic.delays).hold_back
    failed = False

    def fails_once(self: Any, entries: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise MemoryError("by the test")
        return hold_back(self, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(one.topic.delays), "hold_back", fails_once)
        one.port.failures = 0
        await one.stage.publish(one.topic, 1, delays_ms=[3_600_000])
    assert failed
    await one.rounds.after(400)
    assert 10 not in one.got()
    assert one.topic.delays.held.count == 1
    await one.stage.pass_time(3_600_000)
    await one.stage.pass_time(10_000)
    assert one.got()[-1] == 10


@pytest.mark.parametrize(
    ("error", "left"),
    [(EntryDamaged("by the test"), {1}), (PersistenceError("by the test"), {0, 1, 2, 3})],
)
async def test_unreadable_entries_are_left_and_the_rest_comes(
    error: PersistenceError, left: set[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = await play()
    real = single_entry.read_entries

    async def failing(context: Any, storage_reads: Any, wanted: EntryRange) -> Any:
        if wanted.first <= 1 <= wanted.last:
            raise error
        return await real(context, storage_reads, wanted)

    monkeypatch.setattr(single_entry, "read_entries", failing)
    await one.rounds.after(PERIOD_S + 70)
    assert one.got()[6:] == [entry for entry in range(4) if entry not in left]
    # A lost entry has its log line from the read itself.
    logged = any("cannot be read" in record.getMessage() for record in caplog.records)
    assert logged is (type(error) is PersistenceError)


async def test_key_of_a_lost_entry_does_not_drain_for_ever() -> None:
    one = await play(KEY_SHARED)
    second = FakeConsumerPort()
    await one.stage.consume(one.topic, KEY_SHARED, permits=1000, port=second)
    await one.acknowledge(*one.got())
    await one.rounds.after(400)
    everywhere = [*one.got(), *[entry.entry_id for entry in second.got]]
    assert sorted(everywhere) == list(range(10))
    assert set(one.consumer.hashes) == set(one.consumer.pending)


# The pure part


def look(second: int, entry: int) -> HoleLook:
    return HoleLook(second * 1_000_000_000, second * 1000, Position(5, entry))


def test_position_of_a_period_ago_is_that_of_the_last_old_look() -> None:
    looks = [look(10, 5), look(20, 9), look(30, 12)]
    assert passed_before(looks, 9_000_000_000) is None
    assert passed_before(looks, 20_000_000_000) == (5, 9)
    assert passed_before(looks, 99_000_000_000) == (5, 12)


def test_time_of_a_read_is_between_two_looks() -> None:
    looks = [look(10, 5), look(20, 9)]
    assert read_between(looks, (5, 2)) == (None, looks[0])
    assert read_between(looks, (5, 5)) == (looks[0], looks[1])
    assert read_between(looks, (5, 9)) == (looks[1], None)


def test_looks_are_few_and_keep_the_oldest_and_the_newest() -> None:
    looks: list[HoleLook] = []
    for number in range(1000):
        looks = thinned([*looks, look(number, number)])
    assert len(looks) <= LOOKS_KEPT
    assert (looks[0].wall_ms, looks[-1].wall_ms) == (0, 999_000)


def test_reads_join_neighbours_and_short_gaps() -> None:
    keys = [(5, 1), (5, 2), (5, 10), (5, 40), (7, 41)]
    assert joined(keys, small) == [EntryRange(5, 1, 10), EntryRange(5, 40, 40), EntryRange(7, 41, 41)]
    assert [one.last - one.first + 1 for one in joined([(5, entry) for entry in range(250)], small)] == [
        100,
        100,
        50,
    ]


# Any order of events

who, few = st.integers(0, 4), st.integers(1, 12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 12)),
        st.tuples(st.just("flow"), who, few),
        st.tuples(st.just("acknowledge"), who, few),
        st.tuples(st.just("leave"), who),
        st.tuples(st.just("slow"), who, st.booleans()),
        st.tuples(
            st.just("publish"), st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(0, 3)
        ),
        st.tuples(st.just("fail"), who, few),
        st.tuples(st.just("rounds"), st.sampled_from([1, 3, 30])),
        st.tuples(st.just("settle")),
    ),
    max_size=30,
)


class FailingCrowd(Crowd):
    """Its members' deliveries can fail before the client gets anything; those entries are lost until a round finds them."""

    failures = 0

    def _check(self, port: FakeConsumerPort, entry: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError("by the test")
        super()._check(port, entry)

    async def fail(self, _which: int, count: int) -> None:
        self.failures = count


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps, st.sampled_from([SHARED, KEY_SHARED]), st.sampled_from([0, 64 << 20]), st.sampled_from([4, 50_000])
)
def test_nothing_stays_stuck_and_nothing_acknowledged_comes_again(
    steps: list[tuple[Any, ...]], kind: Any, cache_bytes: int, entries_per_ledger: int
) -> None:
    async def run() -> None:
        stage = Stage(
            cache_bytes=cache_bytes,
            entries_per_ledger=entries_per_ledger,
            round_robin_entries_max=2,
            hole_period_s=5,
            key_shared_points=3,
        )
        topic = await stage.open()
        await stage.run(topic.subscribing.create("s", Position(-1, -1)))
        crowd, rounds = FailingCrowd(stage, topic, kind, in_order=False), Rounds(stage)
        for step, *arguments in [*steps, ("settle",)]:
            if step == "rounds":
                await rounds.after(*arguments)
            else:
                await (stage.settle() if step == "settle" else getattr(crowd, step)(*arguments))
        crowd.failures = 0
        await rest(crowd, rounds, topic)

    asyncio.run(run())


async def rest(crowd: FailingCrowd, rounds: Rounds, topic: PersistentTopic) -> None:
    """The same consumers stay and take all that is left: no leave helps, so the rounds alone bring lost entries."""
    if not crowd.members:
        await crowd.join(0)
    for _ in range(40):
        for place in range(len(crowd.members)):
            await crowd.slow(place, True)
            await crowd.flow(place, 1000)
            await crowd.acknowledge(place, 1000)
        await rounds.after(2)
        if topic.subscriptions["s"].cursor.backlog == 0:
            break
    assert topic.subscriptions["s"].cursor.backlog == 0
    assert len(crowd.delivered) == crowd.published
    assert Place.FORGOTTEN not in {one.where.place for one in _holes(topic.subscriptions["s"])}


def _holes(subscription: Subscription) -> list[Any]:
    from broker.service.subscriptions.backlog.holes import next_holes, serving_dispatcher

    dispatcher = serving_dispatcher(subscription)
    assert dispatcher is not None
    return next_holes(subscription, dispatcher, Position(-1, -1), subscription.cursor.read_position)[0]
