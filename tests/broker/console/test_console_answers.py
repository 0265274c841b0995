"""The console's answers about topics, cache, bookies, settings and messages of a whole broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from aiohttp import ClientSession
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from broker.admin.topics.owner_redirect import FROM_CONSOLE
from tests.vectors.broker_process import BrokerProcess

CONSOLE = "/admin/v2/magnetar/console"
MESSAGES = 60
HOLE = 20
"""The message that the subscription `holes` leaves out."""


class Order(Record):  # type: ignore[misc]
    item = String()
    count = Integer()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    """Topic `busy`: read by `all`, with a hole by `holes`, and not by `slow`; topics `list-…`: idle."""
    client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    readers = {
        "all": client.subscribe("busy", "all"),
        "holes": client.subscribe("busy", "holes", consumer_type=pulsar.ConsumerType.Shared),
    }
    client.subscribe("busy", "slow", receiver_queue_size=1)
    producer = client.create_producer("busy", producer_name="maker")
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    for name, consumer in readers.items():
        for number in range(MESSAGES):
            message = consumer.receive(timeout_millis=60_000)
            if name == "all" or number != HOLE:
                consumer.acknowledge(message)
    for number in range(5):
        client.create_producer(f"list-{number}")
    yield client
    client.close()


async def asked(broker: BrokerProcess, path: str, status: int = 200) -> Any:
    async with (
        ClientSession(broker.addresses.admin) as session,
        # As a page asks: of a topic of another broker, its console tells too.
        session.get(f"{CONSOLE}/{path}", headers={FROM_CONSOLE: "1"}) as answer,
    ):
        body = await answer.json()
        assert answer.status == status, body
        return body


async def asked_until(broker: BrokerProcess, path: str, *words: str, value: object) -> Any:
    """Asks again until the value at the end of the words is there: acknowledgements are not waited for."""
    async with asyncio.timeout(60):
        while True:
            found = answer = await asked(broker, path)
            for word in words:
                found = found[word] if isinstance(found, dict) else found[int(word)]
            if found == value:
                return answer
            await asyncio.sleep(0.05)


def names(found: Any) -> list[str]:
    return [row["topic"].rpartition("/")[2] for row in found["topics"]]


@pytest.mark.usefixtures("client")
@pytest.mark.one_broker("a console lists the topics of its broker")
async def test_topics_are_searched_sorted_and_cut(broker: BrokerProcess) -> None:
    found = await asked(broker, "topics?search=LIST-&limit=2&offset=1")
    assert (found["total"], found["found"], names(found)) == (6, 5, ["list-1", "list-2"])
    found = await asked(broker, "topics?sort=name&descending=true&limit=2&offset=4")
    assert names(found) == ["list-0", "busy"]
    found = await asked(broker, "topics?sort=storageBytes&descending=true&limit=1")
    (row,) = found["topics"]
    assert row["topic"] == "persistent://public/default/busy"
    assert (row["producers"], row["subscriptions"], row["consumers"]) == (1, 3, 3)
    assert (row["hitRatio"], row["cachedBytes"] <= row["storageBytes"]) == (1.0, True)
    for wrong in ("sort=size", "descending=yes", "limit=0", "limit=1001", "offset=-1", "limit=x"):
        assert wrong.partition("=")[0] in (await asked(broker, f"topics?{wrong}", 400))["reason"]


@pytest.mark.usefixtures("client")
async def test_topic_shows_ledgers_cursors_and_clients(broker: BrokerProcess) -> None:
    path = "topics/persistent/public/default/busy"
    found = await asked_until(broker, path, "live", "cursors", "1", "backlog", value=1)
    (ledger,) = found["ledgers"]
    assert (ledger["entries"], ledger["lastEntry"], ledger["state"]) == (MESSAGES, MESSAGES - 1, "open")
    cached = sum(last - first + 1 for first, last in ledger["cached"])
    assert cached + ledger["cachedMore"] == ledger["cachedEntries"]
    live = found["live"]
    cursors = {one["name"]: one for one in live["cursors"]}
    place = ledger["ledgerId"]
    assert cursors["holes"]["markDelete"] == {"ledgerId": place, "entryId": HOLE - 1}
    assert cursors["holes"]["holes"] == [[place, HOLE + 1, MESSAGES - 1]]
    assert (cursors["holes"]["kind"], cursors["all"]["kind"]) == ("Shared", "Exclusive")
    assert cursors["slow"]["backlog"] == MESSAGES
    assert cursors["slow"]["consumers"][0]["permits"] <= 1
    assert cursors["all"]["read"] == {"ledgerId": place, "entryId": MESSAGES}
    assert [one["name"] for one in live["producers"]] == ["maker"]
    assert live["messagesIn"] is None


@pytest.mark.usefixtures("client")
async def test_topic_shows_policies_with_their_origin(broker: BrokerProcess) -> None:
    path = "topics/persistent/public/default/busy"
    admin = "/admin/v2/persistent/public/default/busy"
    async with ClientSession(broker.addresses.admin) as session:
        async with session.post(f"{admin}/messageTTL?messageTTL=777") as answer:
            assert answer.status == 204
        async with session.post(
            "/admin/v2/namespaces/public/default/maxConsumersPerTopic", json=55
        ) as answer:
            assert answer.status == 204
    policies = {one["name"]: one for one in (await asked(broker, path))["policies"]}
    ttl, consumers = policies["messageTTLInSeconds"], policies["maxConsumerPerTopic"]
    assert (ttl["value"], ttl["origin"]) == (777, "topic")
    assert (consumers["value"], consumers["origin"]) == (55, "namespace")
    assert policies["deduplicationEnabled"]["origin"] == "broker"


@pytest.mark.usefixtures("client")
async def test_missing_topic_is_not_found(broker: BrokerProcess) -> None:
    await asked(broker, "topics/persistent/public/default/nosuch", 404)
    await asked(broker, "topics/persistent/nosuch/default/x", 404)
    async with (
        ClientSession(broker.addresses.admin) as session,
        session.get("/admin/v2/persistent/public/default/nosuch/stats") as answer,
    ):
        assert answer.status == 404  # Looking at it has not made it.


async def test_answers_about_all_topics_tell_their_cost(broker: BrokerProcess) -> None:
    """The page sets its pace by it, so that 100,000 topics cost no more of a core than ten."""
    for path in ("topics", "cache"):
        assert (await asked(broker, path))["costMs"] > 0


@pytest.mark.usefixtures("client")
@pytest.mark.one_broker("the cache of one process")
async def test_cache_page_agrees_with_the_cache_route(broker: BrokerProcess) -> None:
    found = await asked(broker, "cache?top=1")
    inserted = found["inserted"]["publishedEntries"] + found["inserted"]["fromStorageEntries"]
    assert inserted >= MESSAGES
    assert found["entries"] + sum(one["entries"] for one in found["evicted"].values()) == inserted
    assert found["reads"]["hits"] >= 2 * MESSAGES
    assert found["restTopics"] == 0
    assert sum(found["queue"]["entries"]) == sum(found["expectedReads"].values())
    assert len(found["queue"]["entries"]) == len(found["queue"]["bucketSeconds"]) + 1
    working = {one["subscription"]: one for one in found["workingSets"]}
    assert working["slow"]["distanceEntries"] >= MESSAGES - 2
    curve = found["missRatioCurve"]
    assert (curve["reads"], curve["enough"], curve["now"]["bytes"]) == (0, False, found["maxBytes"])


@pytest.mark.one_broker("asks for the page of the bookie inside the process")
async def test_embedded_bookie_shows_disk_journal_and_read_cache(
    broker: BrokerProcess, client: pulsar.Client
) -> None:
    client.create_producer("stored").send(b"x")
    (bookie,) = (await asked(broker, "bookies"))["bookies"]
    assert (bookie["kind"], bookie["state"], bookie["notes"]) == ("embedded", "writable", [])
    assert bookie["writableDirectories"] == [1, 1]
    (disk,) = bookie["disks"]
    assert disk["path"].startswith(str(broker.folder))
    assert disk["freeBytes"] > 0
    assert 0 < bookie["journal"]["p50Ms"] <= bookie["journal"]["p99Ms"]
    assert bookie["readCache"]["evictedBeforeUse"] == 0


async def test_settings_show_value_origin_and_limits(broker: BrokerProcess) -> None:
    rows = {one["name"]: one for one in (await asked(broker, "settings"))["settings"]}
    key = rows["managedLedgerCacheEvictionTimeThresholdMillis"]
    assert (key["value"], key["dynamic"], key["changed"]) == ("1000", True, False)
    assert key["description"]
    assert rows["brokerServicePort"]["dynamic"] is False
    async with ClientSession(broker.addresses.admin) as session:
        path = "/admin/v2/brokers/configuration/managedLedgerCacheEvictionTimeThresholdMillis"
        async with session.post(f"{path}/3600", json={}) as answer:
            assert answer.status == 200
        rows = {one["name"]: one for one in (await asked(broker, "settings"))["settings"]}
        key = rows["managedLedgerCacheEvictionTimeThresholdMillis"]
        assert (key["value"], key["origin"], key["changed"]) == ("3600", "dynamic", True)
        async with session.delete(path) as answer:
            assert answer.status == 200


async def test_messages_are_taken_out_of_batches_and_decoded(
    broker: BrokerProcess, client: pulsar.Client
) -> None:
    for form, schema in (("json", JsonSchema(Order)), ("avro", AvroSchema(Order))):
        topic = f"decoded-{form}"
        client.subscribe(topic, "s", schema=schema)
        producer = client.create_producer(
            topic, schema=schema, batching_enabled=True, batching_max_publish_delay_ms=60_000
        )
        for number in range(3):
            producer.send_async(
                Order(item=f"item {number}", count=number), None, partition_key="k", properties={"p": "1"}
            )
        producer.flush()
        await asyncio.to_thread(client.get_topic_partitions, topic)
        path = f"messages/persistent/public/default/{topic}"
        peeked = (await asked(broker, f"{path}/subscription/s?count=5"))["messages"]
        assert [one["decoded"] for one in peeked] == [
            {"item": f"item {number}", "count": number} for number in range(3)
        ]
        first = peeked[0]
        assert (first["schema"], first["key"], first["properties"]) == (form.upper(), "k", {"p": "1"})
        assert (first["batchIndex"], first["batchSize"]) == (0, 3)
        place = f"ledger/{first['ledgerId']}/entry/{first['entryId']}"
        assert (await asked(broker, f"{path}/{place}?count=1"))["messages"] == peeked


@pytest.mark.usefixtures("client")
async def test_message_without_schema_is_shown_as_text(broker: BrokerProcess) -> None:
    path = "messages/persistent/public/default/busy/subscription/slow?count=2&first=2"
    first, second = (await asked(broker, path))["messages"]
    assert (first["text"], second["text"], first["decoded"], first["batchIndex"]) == ("1", "2", None, -1)
    assert first["why"] == "the message has no schema"
    await asked(broker, "messages/persistent/public/default/busy/subscription/nosuch", 404)


async def test_answer_of_large_batches_ends(broker: BrokerProcess, client: pulsar.Client) -> None:
    """A number above 2^53 keeps its digits in the text, which is what the page shows."""
    client.subscribe("large", "s").close()
    producer = client.create_producer(
        "large",
        schema=JsonSchema(Order),
        batching_max_messages=100,
        batching_max_publish_delay_ms=60_000,
    )
    for _ in range(60):
        producer.send_async(Order(item="x" * 50_000, count=2**53 + 1), lambda *_: None)
    producer.flush()
    found = await asked(broker, "messages/persistent/public/default/large/subscription/s?count=50")
    assert found["more"]
    assert 0 < len(found["messages"]) < 60
    assert f'"count": {2**53 + 1}' in found["messages"][0]["decodedText"]
    found = await asked(broker, "messages/persistent/public/default/busy/subscription/slow?count=2")
    assert (found["more"], len(found["messages"])) == (False, 2)


async def test_counts_since_the_start_do_not_fall_when_a_topic_is_closed(
    broker: BrokerProcess, client: pulsar.Client
) -> None:
    consumer = client.subscribe("leaves", "s")
    producer = client.create_producer("leaves")
    producer.send(b"x")
    consumer.receive(timeout_millis=60_000)
    before = (await asked(broker, "cache"))["reads"]
    async with (
        ClientSession(broker.addresses.admin) as session,
        session.delete("/admin/v2/persistent/public/default/leaves?force=true") as answer,
    ):
        assert answer.status == 204
    after = (await asked(broker, "cache"))["reads"]
    assert all(after[name] >= before[name] for name in before)


async def test_openapi_names_the_routes_of_the_console(broker: BrokerProcess) -> None:
    async with (
        ClientSession(broker.addresses.admin) as session,
        session.get("/openapi.json") as answer,
    ):
        paths = json.loads(await answer.text())["paths"]
    assert {
        f"{CONSOLE}/{name}" for name in ("events", "topics", "cache", "settings", "rights")
    } <= paths.keys()
    assert all(
        operation["summary"]
        for path, found in paths.items()
        if "console" in path
        for operation in found.values()
    )


async def test_entries_that_enter_the_cache_are_counted_by_their_cause(broker: BrokerProcess) -> None:
    """Two readers come when the entries have left: the storage reads of the first one are cached for the other."""
    client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for name in ("one", "two"):
        client.subscribe("older", name).close()
    producer = client.create_producer("older", batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    before = (await asked_until(broker, "cache", "entries", value=0))["inserted"]
    assert before["publishedEntries"] >= MESSAGES
    for reader in [client.subscribe("older", name) for name in ("one", "two")]:
        for _ in range(MESSAGES):
            reader.receive(timeout_millis=60_000)
    after = (await asked(broker, "cache"))["inserted"]
    client.close()
    assert after["publishedEntries"] == before["publishedEntries"]
    assert after["fromStorageEntries"] > before["fromStorageEntries"]
