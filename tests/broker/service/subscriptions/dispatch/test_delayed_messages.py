"""Delayed messages: nothing early, nothing twice, nothing lost, on Shared and Key_Shared subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.service.consumer import SubscriptionType
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from foundation.model.position import EARLIEST, Position
from tests.fakes.crowd import Crowd
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Stage

YEAR_9999_MS = 253_402_300_799_000
who, few = st.integers(0, 4), st.integers(1, 12)
delays = st.lists(st.sampled_from([0, 0, 500, 3000, 7000, -1000]), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("flow"), who, few),
        st.tuples(st.just("acknowledge"), who, few),
        st.tuples(st.just("refuse"), who, few),
        st.tuples(st.just("leave"), who),
        st.tuples(st.just("slow"), who, st.booleans()),
        st.tuples(
            st.just("publish"),
            st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
            st.integers(0, 3),
            delays,
        ),
        st.tuples(st.just("pass_time"), st.sampled_from([200, 1000, 4000])),
        st.tuples(st.just("settle")),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps,
    st.sampled_from([SHARED, KEY_SHARED]),
    st.sampled_from([0, 64 << 20]),
    st.sampled_from([4, 50_000]),
    st.sampled_from([0, 1, 500]),
    st.sampled_from([0, 3]),
)
def test_every_entry_is_delivered_once_and_not_before_its_time(
    steps: list[tuple[Any, ...]],
    kind: SubscriptionType,
    cache_bytes: int,
    entries_per_ledger: int,
    reads_budget: int,
    look_ahead: int,
) -> None:
    async def play() -> None:
        stage = Stage(
            cache_bytes=cache_bytes,
            entries_per_ledger=entries_per_ledger,
            reads_budget=reads_budget,
            round_robin_entries_max=2,
            delayed_look_ahead=look_ahead,
        )
        topic = await stage.open()
        await stage.run(topic.subscribing.create("s", EARLIEST))
        crowd = Crowd(stage, topic, kind, in_order=False)
        for step, *arguments in [*steps, ("settle",)]:
            await (stage.settle() if step == "settle" else getattr(crowd, step)(*arguments))
        await crowd.finish()

    asyncio.run(play())


def payloads(port: Any) -> list[bytes]:
    return [bytes(entry.body)[-1:] for entry in port.got]


async def test_delayed_message_waits_and_takes_no_permit() -> None:
    stage = Stage(delayed_tick_ms=100)
    topic = await stage.open()
    _, consumer, port = await stage.consume(topic, permits=2)
    await stage.publish(topic, 4, delays_ms=[5000, 0, 5000, 0])
    assert (payloads(port), consumer.permits) == ([b"1", b"3"], 0)
    await stage.pass_time(4800)
    assert len(port.got) == 2
    subscription = topic.subscriptions["s"]
    subscription.flow(consumer, 10)
    await stage.pass_time(200)
    assert payloads(port) == [b"1", b"3", b"0", b"2"]
    assert port.counts == [0, 0, 0, 0], "a delay is no redelivery"


@pytest.mark.parametrize(("strict", "early"), [(False, [b"0"]), (True, [])])
async def test_message_may_be_a_tick_early_unless_strict(strict: bool, early: list[bytes]) -> None:
    stage = Stage(delayed_tick_ms=1000, delayed_strict=strict)
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 1, delays_ms=[900])
    assert payloads(port) == early
    await stage.pass_time(901)
    assert payloads(port) == [b"0"]


@pytest.mark.parametrize("past_bucket_ms", [0, 1, 255, 511])
async def test_delayed_message_is_not_read_again_before_the_tick_of_its_time(past_bucket_ms: int) -> None:
    """Pulsar before 5.0 rounds times down to 512 ms and replays a message up to 511 ms too early, in vain (#26188)."""
    stage = Stage(delayed_tick_ms=1000, cache_bytes=0)
    topic = await stage.open()
    _, consumer, port = await stage.consume(topic, permits=10)
    # A delivery time at that distance from the beginning of its bucket.
    delay_ms = 4096 + past_bucket_ms - (stage.wall_ms + 4096) % 512
    await stage.publish(topic, 1, delays_ms=[delay_ms])
    before = topic.ledger.stats.storage_entries_read
    await stage.pass_time(delay_ms - 1001)
    topic.subscriptions["s"].flow(consumer, 10)
    await stage.settle()
    assert (len(port.got), topic.ledger.stats.storage_entries_read) == (0, before)
    # The timer fires a millisecond later than its time at the latest, and once per tick.
    await stage.pass_time(1001)
    assert len(port.got) == 1


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_other_subscription_types_deliver_at_once(kind: SubscriptionType) -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, kind, permits=10)
    await stage.fire()  # Failover starts after its delay.
    await stage.publish(topic, 2, delays_ms=[60_000])
    assert len(port.got) == 2


async def test_time_in_the_past_and_disabled_delays_deliver_at_once() -> None:
    stage = Stage(delayed_delivery=False)
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 1, delays_ms=[60_000])
    assert len(port.got) == 1
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 3, delays_ms=[-60_000, -1_700_000_000_000 - 5, -1])
    assert len(port.got) == 3, "also with a negative time"


async def test_policies_of_namespace_and_topic_override_the_broker() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=10)
    namespaces = stage.namespaces
    await stage.run(
        namespaces.set_policy("public/default", "delayed_delivery_policies", {"active": False, "tickTime": 5})
    )
    await stage.pass_time(100)
    await stage.publish(topic, 1, delays_ms=[60_000])
    assert len(port.got) == 1
    await stage.run(
        namespaces.set_topic_policy(
            str(topic.name),
            "delayedDelivery",
            {"active": True, "tickTime": 10, "maxDeliveryDelayInMillis": 50},
        )
    )
    await stage.pass_time(100)
    refused = await stage.publish(topic, 2, delays_ms=[20, 51])
    assert len(port.got) == 1
    assert [(number, error.code) for number, error in refused.refusals] == [(1, 22)]
    await stage.pass_time(21)
    assert len(port.got) == 2


async def test_delay_above_the_limit_is_refused_and_nothing_is_stored() -> None:
    stage = Stage(delay_max_ms=1000)
    topic = await stage.open()
    far = YEAR_9999_MS - stage.wall_ms
    port = await stage.publish(topic, 4, delays_ms=[1000, 1001, far, 0])
    assert [number for number, _ in port.refusals] == [1, 2]
    assert [number for number, _, _ in port.receipts] == [0, 3]
    assert "1001" in str(port.refusals[0][1])
    assert topic.ledger.last_confirmed.entry_id == 1


async def test_year_9999_waits_and_does_not_stop_others() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=10)
    await stage.publish(topic, 3, delays_ms=[YEAR_9999_MS - stage.wall_ms, 5000, 2**63 - 1 - stage.wall_ms])
    await stage.pass_time(5000)
    assert payloads(port) == [b"1"]
    assert all(seconds <= 10 for seconds, _ in stage.timers)


async def test_clock_that_jumps_back_delays_but_loses_and_repeats_nothing() -> None:
    stage = Stage(delayed_tick_ms=100)
    topic = await stage.open()
    _, _, first = await stage.consume(topic, permits=100, subscription="one")
    await stage.publish(topic, 4, delays_ms=[5000])
    await stage.pass_time(5000)
    assert len(first.got) == 4
    await stage.pass_time(-3_600_000)
    # A second subscription finds the same entries delayed again; the first one has them already.
    _, _, second = await stage.consume(topic, permits=100, subscription="two")
    await stage.settle()
    assert second.got == []
    for _ in range(4):
        await stage.pass_time(1000)
    assert second.got == []
    await stage.pass_time(3_600_000)
    assert (len(first.got), len(second.got)) == (4, 4)


async def test_clock_that_jumps_forward_is_noticed_within_seconds() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 1, delays_ms=[3_600_000])
    assert min(seconds for seconds, _ in stage.timers) <= 10
    stage.wall_ms += 3_600_000
    await stage.fire()
    assert len(port.got) == 1


async def test_two_subscriptions_share_the_index_and_both_get_everything() -> None:
    stage = Stage()
    topic = await stage.open()
    ports = [(await stage.consume(topic, permits=100, subscription=name))[2] for name in ("one", "two")]
    await stage.publish(topic, 6, delays_ms=[5000, 0])
    assert len(topic.ledger.delayed) == 1
    await stage.pass_time(5000)
    assert [sorted(payloads(port)) for port in ports] == [[b"%d" % n for n in range(6)]] * 2
    assert len(topic.ledger.delayed) == 0


async def test_consumer_that_joins_later_waits_too() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, permits=100)
    await stage.publish(topic, 3, delays_ms=[5000])
    subscription.remove_consumer(consumer)
    _, _, port = await stage.consume(topic, permits=100)
    await stage.settle()
    assert port.got == []
    await stage.pass_time(5000)
    assert len(port.got) == 3


async def test_messages_that_became_due_without_consumers_come_at_once() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, permits=100)
    await stage.publish(topic, 3, delays_ms=[5000])
    subscription.remove_consumer(consumer)
    await stage.pass_time(5000)
    _, _, port = await stage.consume(topic, permits=100)
    await stage.settle()
    assert len(port.got) == 3


async def test_delayed_messages_of_a_former_broker_wait_after_a_restart() -> None:
    stage = Stage(cache_bytes=0)
    topic = await stage.open()
    await stage.run(topic.subscribing.create("s", EARLIEST))
    await stage.publish(topic, 3, delays_ms=[60_000, 0])
    await stage.run(stage.registry.unload(topic.name))
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=100)
    await stage.settle()
    assert payloads(port) == [b"1", b"2"]
    await stage.pass_time(60_000)
    assert payloads(port) == [b"1", b"2", b"0"]


async def test_acknowledged_and_skipped_messages_are_not_delivered_when_due() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 3, delays_ms=[5000])
    ledger_id = topic.ledger.last_confirmed.ledger_id
    subscription.acknowledge(consumer, [(ledger_id, 1)])
    await stage.pass_time(5000)
    assert port.keys == [(ledger_id, 0), (ledger_id, 2)]


async def test_index_and_buckets_go_when_every_cursor_is_behind_them() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, _, _ = await stage.consume(topic, permits=100)
    await stage.publish(topic, 5, delays_ms=[10**9])
    assert len(topic.ledger.delayed) == 5
    await stage.run(subscription.seek(Position(2**62, 0)))
    await stage.pass_time(10_000)
    assert (len(topic.ledger.delayed), topic.ledger.delayed.size_bytes) == (0, 0)


async def test_seek_back_holds_again_and_delivers_what_is_due() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 3, delays_ms=[5000, 0, 60_000])
    await stage.pass_time(5000)
    subscription.acknowledge(consumer, port.keys)
    await stage.run(subscription.seek(EARLIEST))
    _, _, port = await stage.consume(topic, permits=100)
    await stage.settle()
    assert payloads(port) == [b"0", b"1"]
    await stage.pass_time(60_000)
    assert payloads(port) == [b"0", b"1", b"2"]


async def test_key_shared_keeps_the_order_of_due_messages_of_a_key() -> None:
    stage = Stage(cache_bytes=0)
    topic = await stage.open()
    ports = [(await stage.consume(topic, KEY_SHARED, permits=1000, name=name))[2] for name in ("a", "b")]
    await stage.publish(topic, keys=[f"k{n % 7}" for n in range(200)], delays_ms=[5000])
    await stage.pass_time(5000)
    assert sum(len(port.got) for port in ports) == 200
    for port in ports:
        assert port.keys == sorted(port.keys)


async def test_refused_delayed_message_is_redelivered_with_a_count() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=100)
    await stage.publish(topic, 1, delays_ms=[5000])
    await stage.pass_time(5000)
    subscription.redeliver(consumer, port.keys, None)
    await stage.settle()
    assert port.counts == [0, 1]


async def test_fixed_delay_stops_reading_at_the_look_ahead() -> None:
    stage = Stage(delayed_look_ahead=10, read_entries_max=5)
    topic = await stage.open()
    subscription, _, port = await stage.consume(topic, permits=1000)
    for _ in range(6):
        await stage.publish(topic, 10, delays_ms=[5000])
        stage.wall_ms += 1
    assert len(topic.ledger.delayed) < 20
    read_to = subscription.cursor.read_position.entry_id
    assert read_to < 20
    await stage.pass_time(6000)
    assert len(port.got) == 60


async def test_deliveries_are_counted_as_reads_that_the_cache_expects() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.consume(topic, permits=100)
    await stage.publish(topic, 1, delays_ms=[5000])
    last = topic.ledger.last_confirmed
    entry = topic.ledger.cache.peek(*last)
    assert entry is not None
    assert entry.expected_reads == 0, "the entry was released, as Pulsar does"
    await stage.pass_time(5000)
    assert entry.expected_reads == 0


async def test_second_subscription_expects_no_read_of_entries_that_the_first_one_held() -> None:
    stage = Stage()
    topic = await stage.open()
    for name in ("one", "two"):
        await stage.consume(topic, permits=100, subscription=name)
    await stage.publish(topic, 4, delays_ms=[5000, 5000, 0, 5000])
    ledger_id = topic.ledger.last_confirmed.ledger_id
    entries = [topic.ledger.cache.peek(ledger_id, entry_id) for entry_id in range(4)]
    assert [None if entry is None else entry.expected_reads for entry in entries] == [0, 0, 0, 0]


async def test_due_entries_wait_as_bits_while_there_are_no_permits() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=1)
    await stage.publish(topic, 3000, delays_ms=[5000])
    await stage.pass_time(5000)
    dispatcher = subscription.dispatcher
    assert isinstance(dispatcher, SharedDispatcher)
    assert len(port.got) == 1
    assert len(dispatcher.redelivery.queue) < 10
    subscription.flow(consumer, 5000)
    await stage.settle()
    assert len(port.got) == 3000


async def test_statistics_count_what_waits() -> None:
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, _ = await stage.consume(topic, permits=100)
    other, _, _ = await stage.consume(topic, EXCLUSIVE, permits=100, subscription="exclusive")
    await stage.publish(topic, 5, delays_ms=[5000, 5000, 0])
    assert (subscription.delayed, other.delayed) == (2, 0)
    ledger_id = topic.ledger.last_confirmed.ledger_id
    subscription.acknowledge(consumer, [(ledger_id, 0)])
    assert subscription.delayed == 1
    await stage.pass_time(5000)
    assert subscription.delayed == 0


async def test_message_without_a_delay_lets_reading_go_on_past_the_look_ahead() -> None:
    stage = Stage(delayed_look_ahead=10, read_entries_max=5)
    topic = await stage.open()
    _, _, port = await stage.consume(topic, permits=1000)
    await stage.publish(topic, 41, delays_ms=[5000] * 5 + [0] + [5000] * 34 + [0])
    assert payloads(port) == [b"5", b"0"], "the last one is number 40"
    assert len(topic.ledger.delayed) == 39


async def test_entry_that_was_held_between_entries_given_back_is_delivered_when_due() -> None:
    """A batch takes all permits, so the run behind it goes back to the cursor, without the held entry in its midst."""
    stage = Stage()
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, permits=4)
    producer = await stage.producer(topic)
    for number, batch, delay in [(0, 9, 0), (1, 9, 0), (2, 0, 5000), (3, 9, 0)]:
        at_ms = stage.wall_ms + delay if delay else 0
        body = message(b"%d" % number, batch=batch, deliver_at_ms=at_ms)
        send(producer, number, body, max(1, batch), delayed=bool(delay))
    await stage.settle()
    assert payloads(port) == [b"0"]
    assert subscription.cursor.read_position.entry_id == 1
    await stage.pass_time(5000)
    subscription.flow(consumer, 100)
    await stage.settle()
    assert sorted(payloads(port)) == [b"0", b"1", b"2", b"3"]


async def test_key_shared_waits_for_an_older_due_message_that_storage_reads() -> None:
    stage = Stage()
    topic = await stage.open()
    _, _, port = await stage.consume(topic, KEY_SHARED, permits=100)
    await stage.publish(topic, keys=["k", "k"], delays_ms=[5000])
    ledger_id = topic.ledger.last_confirmed.ledger_id
    topic.ledger.cache.invalidate_before(Position(ledger_id, 1))
    assert topic.ledger.cache.peek(ledger_id, 1) is not None
    await stage.pass_time(5000)
    assert payloads(port) == [b"0", b"1"]


@pytest.mark.parametrize("asking", [0, 1])
async def test_key_shared_delivers_due_messages_though_another_consumer_has_no_permits(asking: int) -> None:
    stage = Stage()
    topic = await stage.open()
    consumers = [await stage.consume(topic, KEY_SHARED, name=name) for name in ("a", "b")]
    # Both must read on before the messages are due, so that their keys are not known any more then.
    for subscription, consumer, _ in consumers:
        subscription.flow(consumer, 1)
    await stage.publish(topic, keys=[f"k{n}" for n in range(40)], delays_ms=[5000])
    subscription, idle, _ = consumers[1 - asking]
    idle.permits = 0
    subscription.flow(consumers[asking][1], 100)
    await stage.pass_time(5000)
    got = len(consumers[asking][2].got)
    assert 0 < got < 40
    subscription.flow(idle, 100)
    await stage.settle()
    assert sum(len(port.got) for _, _, port in consumers) == 40
