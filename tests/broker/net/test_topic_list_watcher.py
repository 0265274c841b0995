"""Watchers of one pattern share a list, many changes are one update, and many watchers are told in slices."""

from __future__ import annotations

import asyncio

from broker.net import topic_list_watcher
from foundation.loop.slices import ITEMS_MAX
from foundation.model.topic_name import parse_topic_name
from protocol.pulsar_api_pb2 import BaseCommand, CommandWatchTopicUpdate
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage

NAMESPACE = "public/default"
PER_CLIENT = 100


def name(local: str) -> str:
    return f"persistent://{NAMESPACE}/{local}"


def watch(client: Client, watcher_id: int = 0, pattern: str = ".*") -> None:
    client.say(
        BaseCommand.WATCH_TOPIC_LIST,
        "watchTopicList",
        watcher_id=watcher_id,
        namespace=NAMESPACE,
        topics_pattern=pattern,
    )


async def updates(client: Client) -> list[CommandWatchTopicUpdate]:
    return [one.watchTopicUpdate for one in await client.hear() if one.type == BaseCommand.WATCH_TOPIC_UPDATE]


async def finish(stage: Stage) -> None:
    """Runs the slices that wait, and no other timer."""
    await stage.settle()
    while due := [callback for seconds, callback in stage.timers if not seconds]:
        stage.timers = [(seconds, callback) for seconds, callback in stage.timers if seconds]
        for callback in due:
            callback()
        await stage.settle()


async def create(stage: Stage, *locals_: str) -> None:
    names = [parse_topic_name(name(local)) for local in locals_]
    await stage.run(asyncio.gather(*[stage.registry.get(one, create=True) for one in names]))


async def test_watchers_of_one_pattern_share_a_list_and_each_is_told() -> None:
    stage = Stage()
    port = Port(stage)
    one, other, third = await port.client(), await port.client(), await port.client()
    watch(one)
    await one.hear()
    await create(stage, "a")
    watch(other)
    watch(third, pattern=f"persistent://{NAMESPACE}/b.*")
    (first,) = [each.watchTopicListSuccess for each in await other.hear()]
    assert list(first.topic) == [name("a")]
    lists = port.context.topic_list_watchers
    shared = lists.find(NAMESPACE, ".*")
    assert shared is not None
    assert len(shared.watchers) == 2
    await create(stage, "b1")
    told = [await updates(each) for each in (one, other, third)]
    assert [list(each[-1].new_topics) for each in told] == [[name("b1")]] * 3
    assert told[0][-1].topics_hash == told[1][-1].topics_hash == shared.topics.hash()
    await stage.run(stage.deletions.topic(parse_topic_name(name("a")), force=False))
    assert [list(each.deleted_topics) for each in await updates(other)] == [[name("a")]]
    for each in (one, other, third):
        await each.lose()
    assert lists.find(NAMESPACE, ".*") is None
    assert stage.registry.events.watchers == {}


async def test_many_creations_are_one_update() -> None:
    stage = Stage()
    client = await Port(stage).client()
    watch(client)
    await client.hear()
    names = [parse_topic_name(name(f"t-{number}")) for number in range(50)]
    for one in names:
        stage.registry.events.announce(one, exists=True)
    stage.registry.events.announce(names[0], exists=False)
    (update,) = await updates(client)
    assert sorted(update.new_topics) == sorted(map(str, names[1:]))
    assert list(update.deleted_topics) == [str(names[0])]


async def test_many_names_are_several_updates_with_the_hash_of_them_all() -> None:
    stage = Stage()
    client = await Port(stage).client()
    watch(client)
    await client.hear()
    count = topic_list_watcher.NAMES_PER_UPDATE + 1
    for number in range(count):
        stage.registry.events.announce(parse_topic_name(name(f"t-{number}")), exists=True)
    await finish(stage)
    found = await updates(client)
    assert [len(update.new_topics) for update in found] == [count - 1, 1]
    assert found[0].topics_hash == found[1].topics_hash


async def test_many_watchers_are_told_in_slices() -> None:
    stage = Stage()
    port = Port(stage)
    clients = [await port.client() for _ in range(2 * ITEMS_MAX // PER_CLIENT)]
    for client in clients:
        for number in range(PER_CLIENT):
            watch(client, number)
        await client.hear()
    await create(stage, "a")
    told = sum([len(await updates(client)) for client in clients])
    assert 0 < told < ITEMS_MAX
    # One that comes during the work has the topic in its list; a change during the work comes with the next update.
    late = await port.client()
    watch(late)
    await late.hear()
    await create(stage, "b")
    await finish(stage)
    found = [await updates(client) for client in clients]
    assert sum(map(len, found)) == 2 * 2 * ITEMS_MAX - told
    assert [list(update.new_topics) for update in await updates(late)] == [[name("b")]]
