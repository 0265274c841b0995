"""Acknowledgements that follow one another pass as one run, which does what they do when each has a read of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from broker.managed_ledger.acks import Acks
from broker.service.consumer import SubscriptionType
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from foundation.model.range_set import EntryRange
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand, CommandAck
from tests.fakes.client import Client, Port
from tests.fakes.stage import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, TOPIC, Stage

ENTRIES = 60
KINDS = [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED]
Ack = Callable[[int], CommandAck]


class Scene:
    """A subscription whose one consumer has received every message."""

    def __init__(self, client: Client, subscription: Subscription, ledger_id: int) -> None:
        self.client = client
        self.subscription = subscription
        self.ledger_id = ledger_id

    def ack(self, *entry_ids: int, kind: int = 0, request_id: int = 0, consumer_id: int = 0) -> bytes:
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id, command.ack.ack_type = consumer_id, kind  # type: ignore[assignment]
        if request_id:
            command.ack.request_id = request_id
        for entry_id in entry_ids:
            command.ack.message_id.add(ledgerId=self.ledger_id, entryId=entry_id)
        return command_frame(command)

    def state(self) -> object:
        """Everything that an acknowledgement changes."""
        subscription, consumer = self.subscription, self.subscription.consumers[0]
        acks, dispatcher = subscription.cursor.acks, subscription.dispatcher
        waiting: object = None
        if isinstance(dispatcher, SharedDispatcher):
            unacked = dispatcher.consumer_set.unacked
            redelivery = dispatcher.redelivery
            waiting = unacked, redelivery.queue.keys(), dict(redelivery.counts)
        return (
            acks.mark_delete,
            list(acks.beyond.ranges()),
            acks.partly_acknowledged,
            (consumer.acked_messages, consumer.unacked, dict(consumer.pending), dict(consumer.hashes)),
            waiting,
        )


async def scene_of(kind: SubscriptionType) -> Scene:
    stage = Stage()
    topic = await stage.open()
    client = await Port(stage).client()
    client.subscribe(subType=kind.value)
    # A Failover consumer becomes active after a delay.
    await stage.settle()
    await stage.fire()
    await stage.publish(topic, ENTRIES, keys=[f"k{number % 7}" for number in range(ENTRIES)])
    client.flow(ENTRIES)
    names = await client.names()
    assert names.count("MESSAGE") == ENTRIES
    return Scene(client, topic.subscriptions["s"], topic.ledger.last_confirmed.ledger_id)


@pytest.fixture
def singles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Positions that reach a cursor one by one."""
    seen: list[tuple[int, int]] = []
    plain = Acks.acknowledge

    def acknowledge(acks: Acks, positions: Iterable[tuple[int, int]]) -> int:
        taken = list(positions)
        seen.extend(taken)
        return plain(acks, taken)

    monkeypatch.setattr(Acks, "acknowledge", acknowledge)
    return seen


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries of each run that reaches a cursor."""
    seen: list[int] = []
    plain = Acks.acknowledge_run

    def acknowledge_run(acks: Acks, run: EntryRange) -> int:
        seen.append(run.last - run.first + 1)
        return plain(acks, run)

    monkeypatch.setattr(Acks, "acknowledge_run", acknowledge_run)
    return seen


@pytest.mark.parametrize("kind", KINDS)
async def test_acks_of_one_read_are_one_run(kind: SubscriptionType, runs: list[int]) -> None:
    scene = await scene_of(kind)
    scene.client.feed(b"".join(scene.ack(number) for number in range(40)))
    assert runs == [40]
    assert scene.subscription.cursor.mark_delete_position == (scene.ledger_id, 39)
    assert scene.subscription.consumers[0].acked_messages == 40
    if kind in (SHARED, KEY_SHARED):
        assert scene.subscription.consumers[0].unacked == ENTRIES - 40


@pytest.mark.parametrize("kind", KINDS)
async def test_positions_of_one_ack_are_runs(kind: SubscriptionType, runs: list[int]) -> None:
    scene = await scene_of(kind)
    scene.client.feed(scene.ack(*range(5, 20), *range(0, 5), *range(30, 40), request_id=1))
    assert runs == [15, 5, 10]
    assert scene.subscription.cursor.mark_delete_position == (scene.ledger_id, 19)
    assert await scene.client.names() == ["ACK_RESPONSE"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [0, 25, ENTRIES - 1])
async def test_ids_of_one_ack_that_follow_one_another_reach_the_cursor_as_ranges_alone(
    kind: SubscriptionType, gap: int, runs: list[int], singles: list[tuple[int, int]]
) -> None:
    scene = await scene_of(kind)
    scene.client.feed(scene.ack(*(number for number in range(ENTRIES) if number != gap)))
    assert runs == [size for size in (gap, ENTRIES - 1 - gap) if size]
    assert singles == []
    # One that is alone goes by itself.
    scene.client.feed(scene.ack(gap))
    assert singles == [(scene.ledger_id, gap)]
    assert scene.subscription.cursor.mark_delete_position == (scene.ledger_id, ENTRIES - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
async def test_acks_together_do_what_they_do_one_by_one(kind: SubscriptionType, seed: int) -> None:
    """Among them are ids of no entry, repeated ones, other consumers, ack sets, cumulative ones and requests of answers."""
    chance = random.Random(seed)
    together, apart = await scene_of(kind), await scene_of(kind)
    frames: list[tuple[tuple[int, ...], dict[str, int]]] = []
    for _ in range(30):
        first = chance.randrange(ENTRIES)
        ids = [*range(first, first + chance.choice([1, 3, 12, 70]))]
        values: dict[str, int] = {}
        if chance.random() < 0.2:
            ids, values = [chance.randrange(ENTRIES)], {"kind": 1}
        elif chance.random() < 0.2:
            values = chance.choice([{"request_id": 7}, {"consumer_id": 1}])
        elif chance.random() < 0.2:
            chance.shuffle(ids)
        whole = chance.random() < 0.5
        frames += [(tuple(ids), values)] if whole else [((one,), values) for one in ids]
        if chance.random() < 0.3:
            # Some go back to the queue, so that their redelivery counts and places must be settled too.
            await _settle(together, apart, frames)
            frames = []
            permits = chance.choice([0, 1000])
            for scene in (together, apart):
                scene.client.say(
                    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                    "redeliverUnacknowledgedMessages",
                    consumer_id=0,
                )
                if permits:
                    scene.client.flow(permits)
                await scene.client.hear()
    await _settle(together, apart, frames)


async def _settle(
    together: Scene, apart: Scene, frames: list[tuple[tuple[int, ...], dict[str, int]]]
) -> None:
    together.client.feed(b"".join(together.ack(*ids, **values) for ids, values in frames))
    for ids, values in frames:
        apart.client.feed(apart.ack(*ids, **values))
    assert together.state() == apart.state()
    assert await together.client.names() == await apart.client.names()
    assert together.state() == apart.state()


async def test_a_transaction_and_an_unknown_consumer_end_a_run(runs: list[int]) -> None:
    scene = await scene_of(SHARED)
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 0, CommandAck.Individual
    command.ack.txnid_most_bits = command.ack.txnid_least_bits = 1
    command.ack.request_id = 3
    command.ack.message_id.add(ledgerId=scene.ledger_id, entryId=5)
    before, after = [scene.ack(number) for number in range(5)], [scene.ack(number) for number in range(6, 9)]
    other = scene.ack(9, consumer_id=5)
    scene.client.feed(b"".join((*before, command_frame(command), *after, other)))
    assert runs == [5, 3]
    assert scene.subscription.cursor.mark_delete_position == (scene.ledger_id, 4)
    assert await scene.client.names() == ["ACK_RESPONSE"]


async def test_a_run_wakes_a_consumer_that_waits_for_acknowledgements() -> None:
    stage = Stage(unacked_max_per_consumer=20)
    topic = await stage.open(TOPIC)
    client = await Port(stage).client()
    client.subscribe(subType=SHARED.value)
    await stage.settle()
    await stage.publish(topic, ENTRIES)
    client.flow(ENTRIES)
    assert (await client.names()).count("MESSAGE") == 20
    scene = Scene(client, topic.subscriptions["s"], topic.ledger.last_confirmed.ledger_id)
    client.feed(scene.ack(*range(10)))
    assert (await client.names()).count("MESSAGE") == 10
