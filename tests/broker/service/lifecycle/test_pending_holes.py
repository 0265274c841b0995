"""An entry that is pending at a consumer for too long before an acknowledged one is delivered again, and no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.service.lifecycle import hole_rounds
from broker.service.transactions.pending_acks import AckedEntry
from foundation.model.txn_id import TxnId
from tests.broker.service.lifecycle.hole_play import PERIOD_S, Breaking, Play, Rounds
from tests.fakes.stage import KEY_SHARED, SHARED, Stage

PENDING_S = 60


async def pending_play(kind: Any = SHARED, **config: Any) -> Play:
    """A subscription with ten entries at its consumer, of which all but 2, 3 and 9 are acknowledged."""
    stage = Stage(hole_period_s=PERIOD_S, hole_pending_s=PENDING_S, **config)
    return await pending_play_on(stage, Rounds(stage), kind)


async def pending_play_on(stage: Stage, rounds: Rounds, kind: Any = SHARED) -> Play:
    """The same on a stage whose rounds may have begun."""
    topic = await stage.open()
    port = Breaking()
    subscription, consumer, _ = await stage.consume(topic, kind, permits=1000, port=port)
    found = Play(stage, topic, subscription, consumer, port, rounds)
    await stage.publish(topic, keys=list("abcaabcabc"))
    await found.acknowledge(0, 1, 4, 5, 6, 7, 8)
    return found


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_entry_before_an_acknowledged_one_comes_again_when_it_is_pending_for_too_long(
    kind: Any,
) -> None:
    one = await pending_play(kind)
    await one.rounds.after(PENDING_S - 1)
    assert len(one.got()) == 10
    await one.rounds.after(PENDING_S + 2)
    assert one.got()[10:] == [2, 3], "nothing after 9 is acknowledged"
    assert one.port.counts[10:] == [1, 1]
    await one.rounds.after(2 * PENDING_S + 2)
    assert one.got()[12:] == [2, 3], "once in each period"
    assert one.port.counts[12:] == [2, 2]
    # A late acknowledgement of the first delivery.
    await one.acknowledge(2, 3, 9)
    assert one.subscription.cursor.backlog == 0
    await one.rounds.after(4 * PENDING_S)
    assert len(one.got()) == 14
    watch = one.subscription.holes
    assert watch is not None
    assert (watch.redelivered, watch.pending_redelivered, watch.pending) == (0, 4, {})


@pytest.mark.parametrize("config", [{"hole_pending_s": 0}, {"hole_redelivery": False}])
async def test_pending_entry_stays_where_the_settings_do_not_ask_for_it(config: dict[str, Any]) -> None:
    one = await pending_play()
    one.stage.registry.reconfigure(
        one.stage.registry._ledger_settings, dataclasses.replace(one.stage.registry.settings, **config)
    )
    await one.stage.settle()
    await one.rounds.after(10 * PENDING_S)
    assert len(one.got()) == 10


async def test_time_begins_anew_with_each_delivery_of_a_pending_entry() -> None:
    one = await pending_play()
    await one.rounds.after(PENDING_S)
    # As a negative acknowledgement: the entry is delivered at once, and pending anew.
    one.subscription.redeliver(one.consumer, [(one.ledger_id, 2)], one.consumer.epoch)
    await one.stage.settle()
    assert one.got()[10:] == [2]
    await one.rounds.after(PENDING_S // 2 + 2)
    assert one.got()[11:] == [3]
    await one.rounds.after(PENDING_S)
    assert one.got()[12:] == [2]


async def test_topic_that_opens_after_a_round_without_topics_is_looked_at_within_the_time_of_the_key() -> (
    None
):
    stage = Stage(hole_period_s=PERIOD_S, hole_pending_s=2)
    rounds = Rounds(stage)
    await rounds.after(1)
    one = await pending_play_on(stage, rounds)
    await rounds.after(2 * 2 + 2)
    assert one.got()[10:] == [2, 3]


async def test_entry_that_waits_for_a_consumer_with_permits_is_queued_once() -> None:
    one = await pending_play()
    one.consumer.permits = 0
    await one.rounds.after(10 * PENDING_S)
    assert len(one.got()) == 10
    watch = one.subscription.holes
    assert watch is not None
    assert watch.pending_redelivered == 2
    one.subscription.flow(one.consumer, 100)
    await one.stage.settle()
    assert one.got()[10:] == [2, 3]
    assert one.port.counts[10:] == [1, 1]


@pytest.mark.parametrize("ack_set", [(), (0b10,)])
async def test_entry_of_which_an_open_transaction_has_acknowledged_any_message_stays(
    ack_set: tuple[int, ...],
) -> None:
    one = await pending_play()
    pending = one.subscription.require_transactional().pending
    pending.acknowledge(TxnId(0, 1), [AckedEntry((one.ledger_id, 2), ack_set, batch_size=2)])
    await one.rounds.after(4 * PENDING_S)
    again = one.got()[10:]
    assert again
    assert set(again) == {3}


async def test_pending_entries_come_again_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_rounds, "GROUP_ENTRIES", 1)
    one = await pending_play()
    while len(one.got()) == 10:
        await one.rounds.after(1)
    assert one.got()[10:] == [2]
    await one.rounds.after(1)
    assert one.got()[10:] == [2, 3]


async def test_partial_acknowledgement_of_a_batch_does_not_shorten_the_time_of_the_next_delivery() -> None:
    """The acknowledgement begins the redelivery count anew, so that the entry looks as it did before the delivery."""
    stage = Stage(hole_period_s=PERIOD_S, hole_pending_s=5 * PENDING_S)
    rounds = Rounds(stage)
    topic = await stage.open()
    port = Breaking()
    subscription, consumer, _ = await stage.consume(topic, SHARED, permits=1000, port=port)
    await stage.publish(topic, 1, batch=8)
    await stage.publish(topic, 1)
    (first, last) = [entry.position for entry in port.got]
    subscription.acknowledge(consumer, [last])
    times: list[int] = []
    for second in range(15 * PENDING_S):
        before = len(port.got)
        await rounds.after(1)
        if len(port.got) > before:
            times.append(second)
            subscription.acknowledge_batch(consumer, first, [(1 << (8 - len(times))) - 1], 8)
            await stage.settle()
    assert len(times) == 2
    assert times[1] - times[0] >= 5 * PENDING_S


async def test_more_pending_entries_than_are_noted_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_rounds, "PENDING_NOTED_MAX", 1)
    one = await pending_play()
    await one.rounds.after(6 * PENDING_S)
    assert set(one.got()[10:]) == {2, 3}


@pytest.mark.parametrize("pending_s", [0, PENDING_S])
async def test_consumer_far_above_its_limit_keeps_nothing_from_the_others(pending_s: int) -> None:
    """A batch counts as all its messages, so one delivery may exceed the limit by far."""
    stage = Stage(hole_period_s=PERIOD_S, hole_pending_s=pending_s, unacked_max_per_consumer=10)
    rounds = Rounds(stage)
    topic = await stage.open()
    full, other = Breaking(), Breaking()
    subscription, consumer, _ = await stage.consume(topic, SHARED, permits=1000, port=full)
    for batch in (2, 2, 30):
        await stage.publish(topic, 1, batch=batch)
    (_, second, _) = [entry.position for entry in full.got]
    subscription.acknowledge(consumer, [second])
    await stage.settle()
    await stage.consume(topic, SHARED, permits=50, port=other)
    await rounds.after(2 * PENDING_S + 2)
    await stage.publish(topic, 1)
    await stage.settle()
    assert other.got[-1].entry_id == 3


async def test_consumer_above_its_limit_gets_what_it_gives_back() -> None:
    """As Apache's broker, which unblocks such a consumer."""
    stage = Stage(unacked_max_per_consumer=10)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, SHARED, permits=1000)
    for batch in (2, 30):
        await stage.publish(topic, 1, batch=batch)
    subscription.redeliver(consumer, [port.keys[0]], consumer.epoch)
    await stage.settle()
    assert [entry.entry_id for entry in port.got] == [0, 1, 0]
