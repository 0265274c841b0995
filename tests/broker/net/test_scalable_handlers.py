"""Commands of Pulsar 5.0's clients on ordinary topics, one by one; tests/interop/test_version_5.py has the client."""

from __future__ import annotations

import asyncio
import random
from typing import Final, cast

import pytest

from broker.net.connection_limits import SHARES_MAX
from broker.net.rights import end_withdrawn
from broker.net.stored_shares import GroupKey, Share
from broker.security.principal import Principal
from broker.service.transactions.coordinators import Coordinators
from foundation.model.topic_name import TopicName, parse_topic_name
from protocol.pulsar_api_pb2 import BaseCommand, CommandScalableTopicSubscribe, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage

LOOKUP, SUBSCRIBE = BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.SCALABLE_TOPIC_SUBSCRIBE
TOPIC: Final = "persistent://public/default/t"


async def client(port: Port | None = None, **settings: object) -> Client:
    return await (port or Port(Stage(), scalable_topics=True, **settings)).client()


def ask(client: Client, topic: str, session: int = 7) -> None:
    client.say(LOOKUP, "scalableTopicLookup", session_id=session, topic=topic)


def join(client: Client, name: str, consumer_id: int = 1, topic: str = TOPIC, **values: object) -> int:
    values = {"subscription": "s", "consumer_type": CommandScalableTopicSubscribe.STREAM, **values}
    return client.say(
        SUBSCRIBE,
        "scalableTopicSubscribe",
        topic=topic,
        consumer_name=name,
        consumer_id=consumer_id,
        **values,
    )


@pytest.mark.parametrize("enabled", [True, False])
async def test_connected_has_the_flag_when_the_key_is_on(enabled: bool) -> None:
    port = Port(Stage(), scalable_topics=enabled)
    one = await port.client(connect=False)
    one.say(BaseCommand.CONNECT, "connect", client_version="t", protocol_version=21)
    (connected,) = await one.hear()
    flags = connected.connected.feature_flags
    assert flags.supports_scalable_topics is enabled
    # Without coordinators a client would wait for them.
    assert not flags.supports_tc_metadata_discovery


@pytest.mark.parametrize("enabled", [True, False])
async def test_connected_has_the_flags_of_topic_watchers_when_the_key_is_on(enabled: bool) -> None:
    port = Port(Stage(), topic_watchers=enabled)
    one = await port.client(connect=False)
    one.say(BaseCommand.CONNECT, "connect", client_version="t", protocol_version=21)
    one.say(
        BaseCommand.WATCH_TOPIC_LIST,
        "watchTopicList",
        watcher_id=1,
        namespace="public/default",
        topics_pattern=".*",
    )
    connected, answer = await one.hear()
    flags = connected.connected.feature_flags
    assert flags.HasField("supports_topic_watchers")
    assert flags.supports_topic_watchers is enabled
    assert flags.supports_topic_watcher_reconcile is enabled
    # Pulsar 4.2.4 asks the key for the flags alone.
    assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS


class TwoCoordinators:
    async def count(self) -> int:
        return 2


@pytest.mark.parametrize("watched", [True, False])
async def test_coordinators_are_told_of_when_the_key_is_on(watched: bool) -> None:
    port = Port(Stage(), scalable_topics=True, coordinators_watched=watched)
    port.context.coordinators = cast("Coordinators", TwoCoordinators())
    one = await port.client(connect=False)
    one.say(BaseCommand.CONNECT, "connect", client_version="t", protocol_version=21)
    one.say(BaseCommand.WATCH_TC_ASSIGNMENTS, "watchTcAssignments", watch_id=2)
    connected, answer = await one.hear()
    assert connected.connected.feature_flags.supports_tc_metadata_discovery is watched
    update = answer.watchTcAssignmentsUpdate
    assert update.watch_id == 2
    if watched:
        assert update.snapshot.parallelism == 2
        addresses = [(one.tc_id, one.broker_service_url) for one in update.snapshot.assignments]
        assert addresses == [(0, "pulsar://here:1"), (1, "pulsar://here:1")]
    else:
        assert update.error == ServerError.NotAllowedError
        assert "transactionCoordinatorScalableTopicsEnabled" in update.message


async def test_lookup_answers_one_segment_for_a_topic_that_does_not_exist() -> None:
    one = await client()
    ask(one, "t")
    (answer,) = await one.hear()
    update = answer.scalableTopicUpdate
    assert (update.session_id, update.resolved_topic_name) == (7, "topic://public/default/t")
    assert [(s.hash_start, s.hash_end, s.legacy_topic_name) for s in update.dag.segments] == [
        (0, 65535, TOPIC)
    ]
    assert update.dag.HasField("epoch")
    # Looking at a topic does not create it.
    assert not one.port.stage.registry.topics


async def test_lookup_answers_the_partitions() -> None:
    one = await client()
    await one.port.stage.partitioned.create(parse_topic_name(TOPIC), 3)
    ask(one, TOPIC)
    (answer,) = await one.hear()
    segments = answer.scalableTopicUpdate.dag.segments
    assert [s.legacy_topic_name for s in segments] == [f"{TOPIC}-partition-{number}" for number in range(3)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("topic://public/default/t", ServerError.TopicNotFound),
        ("non-persistent://public/default/t", ServerError.NotAllowedError),
        (f"{TOPIC}-partition-0", ServerError.TopicNotFound),
        ("persistent://public/none/t", ServerError.TopicNotFound),
        ("other://public/default/t", ServerError.InvalidTopicName),
        ("a/b", ServerError.InvalidTopicName),
    ],
)
async def test_topics_that_cannot_be_served_are_refused(topic: str, error: int) -> None:
    one = await client()
    ask(one, topic)
    join(one, "c", topic=topic)
    looked_up, joined = await one.hear()
    assert looked_up.scalableTopicUpdate.error == error
    assert joined.scalableTopicSubscribeResponse.error == error
    assert not one.transport.closing


async def test_commands_are_refused_when_the_key_is_off() -> None:
    one = await Port(Stage(), scalable_topics=False).client()
    ask(one, "t")
    join(one, "c")
    one.say(BaseCommand.WATCH_SCALABLE_TOPICS, "watchScalableTopics", watch_id=1, namespace="public/default")
    one.say(BaseCommand.WATCH_TC_ASSIGNMENTS, "watchTcAssignments", watch_id=2)
    one.say(BaseCommand.LOOKUP, "lookupTopic", topic="topic://public/default/t")
    layout, joined, topics, coordinators, looked_up = await one.hear()
    refused = ServerError.NotAllowedError
    assert layout.scalableTopicUpdate.error == refused
    assert joined.scalableTopicSubscribeResponse.error == refused
    assert topics.watchScalableTopicsUpdate.error == refused
    assert coordinators.watchTcAssignmentsUpdate.error == refused
    assert looked_up.lookupTopicResponse.error == ServerError.InvalidTopicName


async def test_lookup_of_a_scalable_name_is_answered() -> None:
    one = await client()
    one.say(BaseCommand.LOOKUP, "lookupTopic", topic="topic://public/default/t")
    (answer,) = await one.hear()
    assert not answer.lookupTopicResponse.HasField("error")


def let_graces_end(port: Port) -> None:
    for seconds, callback in port.stage.timers:
        if seconds == port.context.settings.share_grace_s:
            callback()


async def test_consumers_share_partitions_until_their_connection_ends() -> None:
    one = await client()
    await one.port.stage.partitioned.create(parse_topic_name(TOPIC), 3)
    two = await client(one.port)
    request = join(one, "a")
    (first,) = await one.hear()
    assert first.scalableTopicSubscribeResponse.request_id == request
    assert len(first.scalableTopicSubscribeResponse.assignment.segments) == 3
    join(two, "b", consumer_id=5)
    (second,) = await two.hear()
    assert [s.segment_id for s in second.scalableTopicSubscribeResponse.assignment.segments] == [2]
    (told,) = await one.hear()
    assert told.scalableTopicAssignmentUpdate.consumer_id == 1
    assert [s.segment_id for s in told.scalableTopicAssignmentUpdate.assignment.segments] == [0, 1]
    await one.lose()
    assert await two.hear() == []
    let_graces_end(one.port)
    (told,) = await two.hear()
    segments = told.scalableTopicAssignmentUpdate.assignment.segments
    assert [s.segment_topic for s in segments] == [f"{TOPIC}-partition-{number}" for number in range(3)]
    two.say(BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE, "scalableTopicUnsubscribe", consumer_id=5)
    assert await two.names() == ["SUCCESS"]
    assert len(one.port.context.partition_shares) == 0


def leave(client: Client, consumer_id: int = 1) -> None:
    client.say(BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE, "scalableTopicUnsubscribe", consumer_id=consumer_id)


async def test_consumer_that_leaves_before_it_has_joined_keeps_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await client()
    partitions = one.port.stage.registry.partitions
    real = partitions.count

    async def late(name: TopicName) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await real(name)

    monkeypatch.setattr(partitions, "count", late)
    join(one, "a")
    leave(one)
    assert await one.names() == ["SCALABLE_TOPIC_SUBSCRIBE_RESPONSE", "SUCCESS"]
    assert len(one.port.context.partition_shares) == 0


async def test_connection_that_ends_during_its_join_keeps_no_share_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await client()
    shares = one.port.context.partition_shares
    gate = asyncio.Event()
    real = shares.stored.read

    async def late() -> dict[GroupKey, dict[str, Share]]:
        await gate.wait()
        return await real()

    monkeypatch.setattr(shares.stored, "read", late)
    join(one, "a")
    await one.hear()
    await one.lose()
    gate.set()
    await one.port.stage.settle()
    assert len(shares) == 0


async def test_right_that_is_withdrawn_ends_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    one = await client()
    await one.port.stage.partitioned.create(parse_topic_name(TOPIC), 2)
    two = await client(one.port)
    join(one, "a")
    join(two, "b")
    assert await one.names() == ["SCALABLE_TOPIC_SUBSCRIBE_RESPONSE", "SCALABLE_TOPIC_ASSIGNMENT_UPDATE"]
    await two.hear()
    authorizer = one.port.context.authorizer
    two.cnx.principal = Principal("two")
    monkeypatch.setattr(authorizer, "may_consume", lambda principal, *rest: principal.role == "two")
    await end_withdrawn(one.port.context)
    (told,) = await two.hear()
    assert len(told.scalableTopicAssignmentUpdate.assignment.segments) == 2
    # At once: a grace is for consumers that may come back.
    assert (one.cnx.shares, len(one.port.context.partition_shares)) == ({}, 1)


async def test_client_that_does_not_read_gets_the_newest_share_alone() -> None:
    one = await client()
    await one.port.stage.partitioned.create(parse_topic_name(TOPIC), 40)
    two = await client(one.port)
    join(one, "a")
    assert await one.names() == ["SCALABLE_TOPIC_SUBSCRIBE_RESPONSE"]
    one.transport.stuck = True
    for _ in range(100):
        join(two, "b")
        leave(two)
        await two.hear()
    join(two, "b")
    (joined,) = await two.hear()
    # A share of 40 partitions has some 3 KB.
    assert 1000 < len(one.transport.kept) < 20_000
    one.transport.take()
    told = [answer.scalableTopicAssignmentUpdate.assignment for answer in await one.hear()]
    theirs = {segment.segment_id for segment in joined.scalableTopicSubscribeResponse.assignment.segments}
    assert len(told) < 10
    assert {segment.segment_id for segment in told[-1].segments} == {*range(40)} - theirs


async def test_a_consumer_id_used_again_leaves_its_former_group() -> None:
    one = await client()
    join(one, "a")
    join(one, "a", subscription="other")
    assert await one.names() == ["SCALABLE_TOPIC_SUBSCRIBE_RESPONSE"] * 2
    assert len(one.port.context.partition_shares) == 1


async def test_one_connection_shares_partitions_for_a_limited_number_of_consumers() -> None:
    one = await client(lookups_max=SHARES_MAX * 2)
    for consumer_id in range(SHARES_MAX + 1):
        join(one, f"c{consumer_id}", consumer_id, subscription=f"s{consumer_id}")
    answers = [each.scalableTopicSubscribeResponse for each in await one.hear()]
    refused = [answer for answer in answers if answer.HasField("error")]
    assert (len(answers), len(refused)) == (SHARES_MAX + 1, 1)
    assert refused[0].error == ServerError.NotAllowedError


@pytest.mark.parametrize(("name", "subscription"), [("x" * 1025, "s"), ("a", "x" * 1025)])
async def test_names_that_outlive_the_connection_are_limited_in_length(name: str, subscription: str) -> None:
    one = await client()
    join(one, name, subscription=subscription)
    (answer,) = await one.hear()
    refused = answer.scalableTopicSubscribeResponse
    assert refused.error == ServerError.NotAllowedError
    assert "at most 1024" in refused.message
    assert len(one.port.context.partition_shares) == 0


async def test_watch_of_scalable_topics_is_an_empty_list() -> None:
    one = await client()
    one.say(BaseCommand.WATCH_SCALABLE_TOPICS, "watchScalableTopics", watch_id=3, namespace="public/default")
    one.say(BaseCommand.WATCH_SCALABLE_TOPICS, "watchScalableTopics", watch_id=4, namespace="public")
    found, refused = (each.watchScalableTopicsUpdate for each in await one.hear())
    assert (found.watch_id, found.HasField("snapshot"), list(found.snapshot.topics)) == (3, True, [])
    assert refused.error == ServerError.InvalidTopicName


async def test_closing_what_was_never_opened_is_accepted() -> None:
    one = await client()
    one.say(BaseCommand.SCALABLE_TOPIC_CLOSE, "scalableTopicClose", session_id=9)
    one.say(BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE, "watchScalableTopicsClose", watch_id=9)
    one.say(BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE, "watchTcAssignmentsClose", watch_id=9)
    assert await one.names() == []
    assert not one.transport.closing


@pytest.mark.parametrize("seed", range(10))
async def test_commands_in_any_order_harm_nobody_and_leave_nothing(seed: int) -> None:
    """A fuzz: clients send what they like; each request is answered once, and nothing stays when they have gone."""
    chance = random.Random(seed)
    port = Port(Stage(), scalable_topics=True)
    bystander = await port.client()
    join(bystander, "bystander", topic="kept")
    clients = [await port.client() for _ in range(4)]
    kinds = {
        "scalableTopicLookup": LOOKUP,
        "scalableTopicClose": BaseCommand.SCALABLE_TOPIC_CLOSE,
        "scalableTopicSubscribe": SUBSCRIBE,
        "scalableTopicUnsubscribe": BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE,
        "watchScalableTopics": BaseCommand.WATCH_SCALABLE_TOPICS,
        "watchScalableTopicsClose": BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE,
        "watchTcAssignments": BaseCommand.WATCH_TC_ASSIGNMENTS,
        "watchTcAssignmentsClose": BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE,
    }
    answers = {
        "scalableTopicLookup": "SCALABLE_TOPIC_UPDATE",
        "scalableTopicSubscribe": "SCALABLE_TOPIC_SUBSCRIBE_RESPONSE",
        "scalableTopicUnsubscribe": "SUCCESS",
        "watchScalableTopics": "WATCH_SCALABLE_TOPICS_UPDATE",
        "watchTcAssignments": "WATCH_TC_ASSIGNMENTS_UPDATE",
    }
    texts = ("t", "u", "topic://public/default/t", "public/default", "", "x" * 5000, "persistent://a/b/c")
    expected: list[list[str]] = [[] for _ in clients]
    for _ in range(300):
        at = chance.randrange(len(clients))
        field = chance.choice(sorted(kinds))
        values: dict[str, object] = {}
        for part in getattr(BaseCommand(), field).DESCRIPTOR.fields:
            if part.name == "request_id" or part.is_repeated:
                continue
            if part.cpp_type == part.CPPTYPE_STRING:
                values[part.name] = chance.choice(texts)
            elif part.enum_type is not None:
                values[part.name] = chance.choice((0, 1))
            elif part.cpp_type == part.CPPTYPE_BOOL:
                values[part.name] = chance.random() < 0.5
            else:
                values[part.name] = chance.choice((0, 1, 2, 2**64 - 1))
        clients[at].say(kinds[field], field, **values)
        expected[at] += [answers[field]] if field in answers else []
    for one, wanted in zip(clients, expected, strict=True):
        heard = [name for name in await one.names() if name != "SCALABLE_TOPIC_ASSIGNMENT_UPDATE"]
        assert sorted(heard) == sorted(wanted)
        assert not one.transport.closing
        await one.lose()
    let_graces_end(port)
    assert await bystander.names() == ["SCALABLE_TOPIC_SUBSCRIBE_RESPONSE"]
    assert len(port.context.partition_shares) == 1
