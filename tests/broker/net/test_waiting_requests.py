"""Requests that wait: reused ids, connections lost meanwhile, and the order of answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from broker.net.server_cnx import CLOSED_PRODUCERS_MAX
from broker.service.topics import topic_lists
from broker.service.topics.persistent_topic import PersistentTopic
from protocol.pulsar_api_pb2 import BaseCommand, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage


def topic_of(stage: Stage) -> PersistentTopic:
    topic = stage.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    return topic


REQUESTS: list[Callable[[Client], object]] = [
    lambda client: client.produce(5),
    lambda client: client.produce(5, producer_access_mode=1),
    lambda client: client.produce(5, initial_subscription_name="dlq"),
    lambda client: client.subscribe(5, subscription="other"),
    lambda client: client.subscribe(5, subscription="reader", durable=False),
    lambda client: client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0),
    lambda client: client.say(BaseCommand.UNSUBSCRIBE, "unsubscribe", consumer_id=0),
    lambda client: client.say(BaseCommand.SEEK, "seek", consumer_id=0, message_publish_time=5),
    lambda client: client.say(BaseCommand.GET_LAST_MESSAGE_ID, "getLastMessageId", consumer_id=0),
    lambda client: client.say(
        BaseCommand.WATCH_TOPIC_LIST,
        "watchTopicList",
        watcher_id=1,
        namespace="public/default",
        topics_pattern=".*",
    ),
]


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("request_number", range(len(REQUESTS)))
async def test_connection_lost_during_a_request_leaves_nothing_behind(
    request_number: int, turns: int
) -> None:
    stage = Stage()
    port = Port(stage)
    client = await port.client()
    if request_number not in (1,):
        client.produce(0, producer_name="p")
    client.subscribe(0)
    await client.hear()
    stage.metadata.gate = asyncio.Event()
    REQUESTS[request_number](client)
    for _ in range(turns):
        while stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    if turns % 2:
        stage.metadata.gate.set()
    client.transport.closing = True
    client.cnx.connection_lost(None)
    stage.metadata.gate.set()
    await stage.settle()
    topic = topic_of(stage)
    assert (topic.access.producers, topic.access.waiting, topic.access.exclusive) == ({}, (), None)
    assert all(found.consumers == [] for found in topic.subscriptions.values())
    assert all(found.durable for found in topic.subscriptions.values())
    assert set(topic.ledger.cursors.by_name) == set(topic.subscriptions)
    assert stage.registry.events.watchers == {}
    assert port.context.connections == set()
    assert (client.cnx.consumers, client.cnx.producers, client.cnx.outbox.frames) == ({}, {}, [])
    assert port.tasks._tasks == set()


async def test_reused_id_belongs_to_the_later_request() -> None:
    stage = Stage(consumers_max_per_topic=1)
    port = Port(stage)
    client, other = await port.client(), await port.client()
    other.subscribe(0, subscription="other")
    await other.hear()
    client.subscribe(0)  # It will be refused, one consumer is the limit,
    client.say(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=0)
    client.subscribe(0, topic=TOPIC + "2")  # and this one not.
    assert sorted(await client.names()) == ["ERROR", "SUCCESS", "SUCCESS"]
    assert 0 in client.cnx.consumers
    client.produce(0, topic="persistent://no/such/t")
    client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
    client.produce(0)
    assert sorted(await client.names()) == ["ERROR", "PRODUCER_SUCCESS", "SUCCESS"]
    client.publish(0)
    assert await client.names() == ["SEND_RECEIPT"]


async def test_consumer_closed_while_it_is_opened_is_removed() -> None:
    stage = Stage()
    client = await Port(stage).client()
    client.subscribe(0)
    client.say(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=0)
    client.subscribe(1)
    assert await client.names() == ["SUCCESS", "SUCCESS"]
    assert [one.consumer_id for one in topic_of(stage).subscriptions["s"].consumers] == [1]


async def test_repeated_request_is_refused_while_open_and_confirmed_afterwards() -> None:
    stage = Stage()
    client = await Port(stage).client()
    client.produce(0)
    client.produce(0)
    client.subscribe(0)
    client.subscribe(0)
    assert sorted(await client.names()) == ["ERROR", "ERROR", "PRODUCER_SUCCESS", "SUCCESS"]
    client.produce(0)
    client.subscribe(0)
    assert sorted(await client.names()) == ["PRODUCER_SUCCESS", "SUCCESS"]


async def test_receipts_are_sent_before_the_answer_to_close_producer() -> None:
    client = await Port(Stage()).client()
    client.produce(0)
    await client.hear()
    for number in range(3):
        client.publish(number)
    client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
    assert await client.names() == ["SEND_RECEIPT"] * 3 + ["SUCCESS"]
    client.publish(3)
    assert client.transport.closing, "a closed producer cannot publish"


async def test_sends_are_ignored_after_the_broker_closed_the_producer() -> None:
    stage = Stage()
    client = await Port(stage).client()
    client.produce(0)
    client.subscribe(0)
    await client.hear()
    client.flow(1)
    await stage.settle()
    await stage.run(topic_of(stage).terminate())
    client.publish(0)
    assert await client.names() == ["CLOSE_PRODUCER", "REACHED_END_OF_TOPIC"]
    assert not client.transport.closing
    client.produce(0)
    [answer] = await client.hear()
    assert answer.error.error == ServerError.TopicTerminatedError
    for number in range(CLOSED_PRODUCERS_MAX + 10):
        client.cnx.ignore_sends_of(number)
    assert len(client.cnx.closed_producers) == CLOSED_PRODUCERS_MAX


async def test_producer_is_closed_before_its_send_to_a_terminated_topic_is_refused() -> None:
    stage = Stage()
    client = await Port(stage).client()
    client.produce(0)
    await client.hear()
    await stage.settle()
    # As while the topic's end is being stored: the log takes no entries, and producers are still connected.
    await stage.run(topic_of(stage).ledger.terminate())
    client.publish(0)
    closed, refused = await client.hear()
    assert BaseCommand.Type.Name(closed.type) == "CLOSE_PRODUCER"
    assert refused.send_error.error == ServerError.TopicTerminatedError
    client.publish(1)
    assert await client.names() == []
    assert not client.transport.closing


async def test_fenced_producer_loses_its_connection_with_its_next_message() -> None:
    stage = Stage()
    port = Port(stage)
    fenced, fencing = await port.client(), await port.client()
    fenced.produce(0, producer_access_mode=1)
    await fenced.hear()
    fencing.produce(0, producer_access_mode=3)
    assert await fencing.names() == ["PRODUCER_SUCCESS"]
    assert await fenced.names() == []
    fenced.publish(0)
    assert fenced.transport.closing


async def test_waiting_producer_is_told_when_it_is_ready() -> None:
    stage = Stage()
    port = Port(stage)
    first, second = await port.client(), await port.client()
    first.produce(0, producer_access_mode=1)
    await first.hear()
    request_id = second.produce(0, producer_access_mode=2)
    [answer] = await second.hear()
    assert not answer.producer_success.producer_ready
    await first.lose()
    [answer] = await second.hear()
    assert answer.producer_success.producer_ready
    assert answer.producer_success.request_id == request_id


async def test_two_requests_for_one_watcher_id_create_one_watcher() -> None:
    stage = Stage()
    client = await Port(stage).client()
    stage.metadata.gate = asyncio.Event()
    for _ in range(2):
        client.say(
            BaseCommand.WATCH_TOPIC_LIST,
            "watchTopicList",
            watcher_id=1,
            namespace="public/default",
            topics_pattern="public/default/.*",
        )
    await stage.settle()
    stage.metadata.gate.set()
    assert await client.names() == ["WATCH_TOPIC_LIST_SUCCESS"] * 2
    client.produce(0)
    assert sorted(await client.names()) == ["PRODUCER_SUCCESS", "WATCH_TOPIC_UPDATE"]
    await client.lose()
    assert stage.registry.events.watchers == {}


async def test_refused_lookup_is_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    """A client repeats a refused lookup for as long as its application waits."""
    client = await Port(Stage()).client()
    lookup = {"topic": "persistent://no/such/t", "request_id": 7}
    with caplog.at_level(logging.DEBUG):
        client.say(BaseCommand.LOOKUP, "lookupTopic", **lookup)
        (answer,) = await client.hear()
    assert answer.lookupTopicResponse.error == ServerError.TopicNotFound
    assert [record.levelname for record in caplog.records if "Namespace not found" in record.message] == [
        "DEBUG"
    ]


def watch(client: Client, pattern: str, namespace: str = "public/default") -> None:
    client.say(
        BaseCommand.WATCH_TOPIC_LIST,
        "watchTopicList",
        watcher_id=1,
        namespace=namespace,
        topics_pattern=pattern,
    )


def list_topics(client: Client, pattern: str, namespace: str = "public/default") -> None:
    client.say(
        BaseCommand.GET_TOPICS_OF_NAMESPACE,
        "getTopicsOfNamespace",
        namespace=namespace,
        topics_pattern=pattern,
    )


@pytest.mark.parametrize("ask", [watch, list_topics])
@pytest.mark.parametrize(
    "namespace",
    [
        *("", "/", "public", "public/", "/default", "public//default", "a/b/c", "public/default/x"),
        *(
            "persistent://public/default",
            "public/de fault",
            " public/default",
            "public/de\nfault",
            "public/ns%",
        ),
        *("public\\default", "ä/default", "x" * 5000),
    ],
)
async def test_malformed_namespace_ends_the_connection(
    caplog: pytest.LogCaptureFixture, ask: Callable[..., None], namespace: str
) -> None:
    """As Apache Pulsar 4.2.4 answers."""
    client = await Port(Stage()).client()
    with caplog.at_level(logging.INFO):
        ask(client, ".*", namespace)
        assert await client.names() == []
    assert client.transport.closing
    (line,) = [one.getMessage() for one in caplog.records if "is no namespace" in one.getMessage()]
    assert line.isprintable()
    assert len(line) < 300


@pytest.mark.parametrize("ask", [watch, list_topics])
@pytest.mark.parametrize("namespace", ["no/such", "public/..", "public/default/", "public/default//"])
async def test_namespace_that_does_not_exist_has_no_topics(ask: Callable[..., None], namespace: str) -> None:
    client = await Port(Stage()).client()
    ask(client, ".*", namespace)
    (answer,) = await client.hear()
    assert not answer.getTopicsOfNamespaceResponse.topics
    assert not answer.watchTopicListSuccess.topic
    assert not client.transport.closing


@pytest.mark.parametrize(
    ("settings", "pattern", "code"),
    [
        ({}, "(", ServerError.InvalidTopicName),
        ({}, "x" * 51, ServerError.NotAllowedError),
        ({}, "(?!x).*", ServerError.NotAllowedError),
        ({"evaluates_patterns": False}, ".*", ServerError.NotAllowedError),
    ],
)
async def test_watch_of_a_pattern_is_refused(
    settings: dict[str, bool], pattern: str, code: ServerError.ValueType
) -> None:
    client = await Port(Stage(), **settings).client()
    watch(client, pattern)
    (answer,) = await client.hear()
    assert answer.error.error == code
    assert client.cnx.watchers == {}


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [({}, "x" * 51), ({}, "(?!x).*"), ({"evaluates_patterns": False}, "x")],
)
async def test_client_gets_all_names_when_the_broker_does_not_evaluate_a_pattern(
    settings: dict[str, bool], pattern: str
) -> None:
    stage = Stage()
    client = await Port(stage, **settings).client()
    await stage.open()
    list_topics(client, pattern)
    (answer,) = await client.hear()
    assert list(answer.getTopicsOfNamespaceResponse.topics) == [TOPIC]
    assert not answer.getTopicsOfNamespaceResponse.filtered


async def test_invalid_pattern_of_a_list_is_refused() -> None:
    client = await Port(Stage()).client()
    list_topics(client, "(")
    (answer,) = await client.hear()
    assert answer.error.error == ServerError.MetadataError


@pytest.mark.parametrize("turns", range(8))
async def test_topic_created_while_a_watch_begins_is_reported_once(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "NAMES_PER_SLICE", 2)
    stage = Stage()
    client = await Port(stage).client()
    for number in range(14):  # The list takes 7 turns. `hear` gives up after 8 idle ones.
        await stage.open(f"persistent://public/default/{number}")
    watch(client, ".*")
    for _ in range(turns):
        await asyncio.sleep(0)
    await stage.open("persistent://public/default/late")
    first, *updates = await client.hear()
    reported = [*first.watchTopicListSuccess.topic]
    for update in updates:
        reported += update.watchTopicUpdate.new_topics
    assert reported.count("persistent://public/default/late") == 1


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_topic_or_subscription_with_a_line_end_in_its_name_is_not_created(domain: str) -> None:
    client = await Port(Stage()).client()
    client.produce(0, topic=f"{domain}://public/default/a\nb")
    client.subscribe(0, topic=f"{domain}://public/default/x", subscription="a\nb")
    client.produce(1, topic=f"{domain}://public/default/y", initial_subscription_name="a\nb")
    refused = [command.error for command in await client.hear() if command.type == BaseCommand.ERROR]
    assert len(refused) >= 2
    assert all("name a\\nb has control characters" in error.message for error in refused)
    assert f"{domain}://public/default/a\nb" not in client.port.stage.registry.topics
