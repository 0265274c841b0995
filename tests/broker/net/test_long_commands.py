"""An ACK or REDELIVER with many positions is handled in slices: all of it, in order, before the next command."""

from __future__ import annotations

from broker.net.slices import IDS_PER_SLICE
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand, CommandAck
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage

ENTRIES = 2 * IDS_PER_SLICE + 500


async def turns(stage: Stage) -> None:
    """Runs timers without a delay until there are none; those of connections' PINGs stay."""
    while now := [callback for seconds, callback in stage.timers if not seconds]:
        stage.timers = [timer for timer in stage.timers if timer[0]]
        for callback in now:
            callback()
        await stage.settle()


def subscription_of(stage: Stage) -> Subscription:
    topic = stage.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    return topic.subscriptions["s"]


async def consumer_of_many(stage: Stage, kind: int = 1) -> Client:
    """A Shared consumer that has all entries, none acknowledged."""
    client = await Port(stage).client()
    client.subscribe(0, subType=kind)
    client.produce(0)
    await client.hear()
    client.flow(ENTRIES)
    for number in range(ENTRIES):
        client.publish(number)
        if number % 100 == 0:
            await stage.settle()
    assert (await client.names()).count("MESSAGE") == ENTRIES
    return client


def positions(stage: Stage, order: range) -> list[tuple[int, int]]:
    ledger_id = subscription_of(stage).cursor.mark_delete_position.ledger_id
    return [(ledger_id, entry_id) for entry_id in order]


def ack_frame(ids: list[tuple[int, int]], request_id: int) -> bytes:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.request_id = 0, request_id
    command.ack.ack_type = CommandAck.Individual
    for ledger_id, entry_id in ids:
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return command_frame(command)


def redeliver_frame(ids: list[tuple[int, int]]) -> bytes:
    command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliverUnacknowledgedMessages.consumer_id = 0
    for ledger_id, entry_id in ids:
        command.redeliverUnacknowledgedMessages.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
    return command_frame(command)


async def test_long_ack_takes_several_turns_and_is_answered_behind_the_last() -> None:
    stage = Stage()
    client = await consumer_of_many(stage)
    ids = positions(stage, range(ENTRIES))
    # In one read with a further command, which must wait; more would not fit into the memory for one read.
    first, second = ids[: IDS_PER_SLICE + 1], ids[IDS_PER_SLICE + 1 :][:1]
    client.feed(ack_frame(first, 70) + ack_frame(second, 71))
    await stage.settle()
    assert subscription_of(stage).cursor.backlog == ENTRIES - IDS_PER_SLICE
    assert not client.transport.reading
    await turns(stage)
    assert [one.ackResponse.request_id for one in await client.hear()] == [70, 71]
    left = ENTRIES - len(first) - len(second)
    assert subscription_of(stage).cursor.backlog == left
    assert subscription_of(stage).consumers[0].unacked == left
    assert client.transport.reading


async def test_long_ack_is_carried_out_when_its_client_leaves() -> None:
    stage = Stage()
    client = await consumer_of_many(stage)
    client.feed(ack_frame(positions(stage, range(ENTRIES)), 70))
    await client.lose()
    await turns(stage)
    assert subscription_of(stage).cursor.backlog == 0


async def test_long_ack_ends_with_the_topic() -> None:
    stage = Stage()
    client = await consumer_of_many(stage)
    client.feed(ack_frame(positions(stage, range(ENTRIES)), 70))
    cursor = subscription_of(stage).cursor
    await stage.run(stage.registry.unload(parse_topic_name(TOPIC)))
    await turns(stage)
    assert cursor.backlog == ENTRIES - IDS_PER_SLICE


async def test_long_ack_without_an_entry_id_closes_the_connection() -> None:
    stage = Stage()
    client = await consumer_of_many(stage)
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = 0
    command.ack.ack_type = CommandAck.Individual
    for ledger_id, entry_id in positions(stage, range(ENTRIES)):
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    command.ack.message_id[-1].ClearField("entryId")
    packed = command.SerializePartialToString()
    client.feed((len(packed) + 4).to_bytes(4, "big") + len(packed).to_bytes(4, "big") + packed)
    await turns(stage)
    assert client.transport.closing


async def test_long_redelivery_brings_every_message_again_in_the_order_of_the_log() -> None:
    stage = Stage()
    client = await consumer_of_many(stage)
    client.flow(ENTRIES)
    # Backwards: one call with all of them would sort them too.
    client.feed(redeliver_frame(positions(stage, range(ENTRIES - 1, -1, -1))))
    await turns(stage)
    heard = await client.hear()
    came = [one.message.message_id.entryId for one in heard if one.type == BaseCommand.MESSAGE]
    assert came == list(range(ENTRIES))


async def test_redelivery_of_an_exclusive_consumer_starts_over_at_once() -> None:
    stage = Stage()
    client = await consumer_of_many(stage, kind=0)
    client.flow(ENTRIES)
    client.feed(redeliver_frame(positions(stage, range(ENTRIES))))
    assert (await client.names()).count("MESSAGE") == ENTRIES
