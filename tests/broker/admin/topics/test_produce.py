"""Messages published over HTTP: their ids, metadata and bytes, and the requests that publish nothing."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import ClientSession

from broker.compaction.entry_content import read_entry
from broker.compose.broker_service import BrokerService
from foundation.model.position import Position
from tests.broker.admin.publishing import publish_plain
from tests.broker.admin.test_rest import PERSISTENT, TOPICS, call, persistent, refusal

TOPIC = "/topics/persistent/public/default/t"
NOW_MS = 1_600_000_000_000


@pytest.fixture
async def topic(admin: ClientSession) -> None:
    assert (await call(admin, f"PUT {TOPICS}/t"))[0] == 204


async def results(admin: ClientSession, path: str, body: object) -> list[dict[str, object]]:
    status, answer = await call(admin, f"POST {path}", body)
    assert isinstance(answer, dict), answer
    assert status == 200
    found = answer["messagePublishResults"]
    assert isinstance(found, list)
    return found


async def stored(broker: BrokerService, topic: str, message_id: object) -> tuple[dict[str, object], bytes]:
    """Metadata and payload of a message by the id that a client got."""
    ledger_id, entry_id, partition = map(int, str(message_id).split(":"))
    name = topic if partition < 0 else f"{topic}-partition-{partition}"
    entry = await (await persistent(broker, name)).ledger.read_entry(Position(ledger_id, entry_id))
    metadata, payload = read_entry(entry.body)
    return {field.name: value for field, value in metadata.ListFields()}, bytes(payload)


@pytest.mark.usefixtures("topic")
async def test_messages_are_stored_in_order_with_their_ids(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 1)
    found = await results(admin, TOPIC, {"messages": [{"payload": f"m{index}"} for index in range(120)]})
    topic = await persistent(broker, "t")
    ledger_id = topic.ledger.last_confirmed.ledger_id
    expected = [f"{ledger_id}:{index}:-1" for index in range(1, 121)]
    assert [one["messageId"] for one in found] == expected
    assert {(one["errorCode"], one["schemaVersion"]) for one in found} == {(0, 0)}
    assert (await stored(broker, "t", expected[119]))[1] == b"m119"
    assert not topic.access.producers
    assert await call(admin, f"POST {TOPIC}", {"messages": []}) == (
        200,
        {"messagePublishResults": [], "schemaVersion": 0},
    )
    schema = (await call(admin, "GET /admin/v2/schemas/public/default/t/schema"))[1]
    assert isinstance(schema, dict)
    assert (schema["type"], schema["properties"]) == ("STRING", {"__charset": "UTF-8"})


@pytest.mark.usefixtures("topic")
async def test_metadata_of_a_message_is_that_of_the_request(
    admin: ClientSession, broker: BrokerService
) -> None:
    message = {
        "key": "k",
        "payload": "v",
        "eventTime": "1603045262772",
        "sequenceId": 7,
        "properties": {"a": "b", "n": 5},
        "deliverAt": NOW_MS,
        "disableReplication": True,
        "unknown": [1],
    }
    found = await results(admin, TOPIC, {"producerName": "rp", "messages": [message]})
    metadata, payload = await stored(broker, "t", found[0]["messageId"])
    assert payload == b"v"
    assert {name: metadata[name] for name in ("producer_name", "sequence_id", "partition_key")} == {
        "producer_name": "rp",
        "sequence_id": 7,
        "partition_key": "k",
    }
    assert (metadata["event_time"], metadata["deliver_at_time"]) == (1603045262772, NOW_MS)
    assert list(metadata["replicate_to"]) == ["__local__"]  # type: ignore[call-overload]
    assert {pair.key: pair.value for pair in metadata["properties"]} == {"a": "b", "n": "5"}  # type: ignore[attr-defined]


async def test_messages_of_one_key_go_to_one_partition_and_others_in_turns(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 3)
    path = "/topics/persistent/public/default/p"
    keyed = await results(admin, path, {"messages": [{"payload": "x", "key": "k"}] * 3})
    # Murmur3 of "k" is a multiple of 3; recorded of Apache Pulsar 4.2.4.
    assert {str(one["messageId"]).rpartition(":")[2] for one in keyed} == {"0"}
    others = await results(admin, path, {"messages": [{"payload": "x"}] * 6})
    places = [str(one["messageId"]).rpartition(":")[2] for one in others]
    assert (sorted(places[:3]), places[3:]) == (["0", "1", "2"], places[:3])
    chosen = await results(admin, f"{path}/partitions/2", {"messages": [{"payload": "x"}]})
    assert str(chosen[0]["messageId"]).endswith(":2")
    assert (await refusal(admin, f"POST {path}/partitions/3", {"messages": []}))[0] == 404
    assert (await call(admin, f"POST {path}/partitions/x", {"messages": []}))[0] == 404


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("kind", "given", "data"),
    [
        ("INT8", "-1", b"\xff"),
        ("INT16", "258", b"\x01\x02"),
        ("INT32", 5, b"\0\0\0\x05"),
        ("INT64", "5", b"\0\0\0\0\0\0\0\x05"),
        ("DOUBLE", "1.5", b"\x3f\xf8\0\0\0\0\0\0"),
        ("FLOAT", "1.5", b"\x3f\xc0\0\0"),
        ("BOOLEAN", True, b"\x01"),
        ("STRING", "ä", "ä".encode()),
        ("JSON", '{"a": 1}', b'{"a": 1}'),
        ("JSON", r'{"a": "\ud83d"}', rb'{"a": "\ud83d"}'),
    ],
)
async def test_payload_becomes_the_bytes_of_its_schema(
    admin: ClientSession, broker: BrokerService, kind: str, given: object, data: bytes
) -> None:
    definition = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}
    text = json.dumps(definition).encode() if kind == "JSON" else b""
    schema = json.dumps({"name": "s", "type": kind, "schema": base64.b64encode(text).decode()})
    found = await results(admin, TOPIC, {"valueSchema": schema, "messages": [{"payload": given}]})
    metadata, payload = await stored(broker, "t", found[0]["messageId"])
    assert (payload, metadata["schema_version"]) == (data, bytes(8))
    again = await results(admin, TOPIC, {"schemaVersion": 0, "messages": [{"payload": given}]})
    assert (await stored(broker, "t", again[0]["messageId"]))[1] == data


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (None, 400),
        ([], 400),
        ({}, 400),
        ({"messages": "x"}, 400),
        ({"messages": [5]}, 400),
        ({"messages": [{"payload": "good"}, {}]}, 400),
        ({"messages": [{"payload": {"a": 5}}]}, 400),
        ({"messages": [{"payload": "x", "sequenceId": "y"}]}, 400),
        ({"messages": [{"payload": "x", "sequenceId": 10**23}]}, 400),
        ({"messages": [{"payload": "x", "sequenceId": -1}]}, 412),
        ({"messages": [{"payload": "x", "deliverAfterMs": 2**63 - 1}]}, 400),
        ({"messages": [{"payload": "x", "key": "\ud800"}]}, 400),
        ({"messages": [{"payload": "x"}], "producerName": "\udfff"}, 400),
        ({"messages": [{"payload": "x"}], "valueSchema": '{"type": []}'}, 400),
        (
            {
                "messages": [{"payload": "{}"}],
                "valueSchema": '{"type": "STRING", "properties": {"\\ud800": ""}}',
            },
            400,
        ),
        ({"messages": [{"payload": "x"}], "valueSchema": "zzz"}, 400),
        ({"messages": [{"payload": "x"}], "valueSchema": '{"type": "FOO"}'}, 400),
        ({"messages": [{"payload": "x"}], "valueSchema": '{"type": "AVRO", "schema": "e30="}'}, 400),
        ({"messages": [{"payload": "x"}], "valueSchema": '{"type": "INT32", "schema": ""}'}, 400),
        ({"messages": [{"payload": "x"}], "keySchema": "{}"}, 400),
        ({"messages": [{"payload": "x"}], "schemaVersion": 9}, 404),
    ],
    ids=str,
)
async def test_bad_request_publishes_nothing(
    admin: ClientSession, broker: BrokerService, body: object, status: int
) -> None:
    assert (await call(admin, f"POST {TOPIC}", body))[0] == status
    assert (await persistent(broker, "t")).ledger.ledgers.entries == 0


async def test_topic_is_not_created_by_a_message(admin: ClientSession) -> None:
    body = {"messages": [{"payload": "x"}]}
    missing = (404, "Topic persistent://public/default/t not found")
    assert await refusal(admin, f"POST {TOPIC}", body) == missing
    other = "POST /topics/persistent/public/nowhere/t"
    assert await refusal(admin, other, body) == (404, "Namespace not found")
    assert (await refusal(admin, f"POST {TOPIC}/partitions/0", body))[0] == 404


@pytest.mark.usefixtures("topic")
async def test_message_above_the_limit_of_its_topic_is_refused_alone(admin: ClientSession) -> None:
    await call(admin, f"POST {TOPICS}/t/maxMessageSize", 200)
    found = await results(admin, TOPIC, {"messages": [{"payload": "x" * 300}, {"payload": "y"}]})
    assert [one["errorCode"] for one in found] == [2, 0]
    assert (found[0]["messageId"], found[0]["errorMsg"]) == ("-1", "Exceed maximum message size")


@pytest.mark.usefixtures("topic")
async def test_terminated_topic_and_other_schemas_are_refused(admin: ClientSession) -> None:
    await call(
        admin,
        "POST /admin/v2/schemas/public/default/t/schema",
        {"type": "INT32", "schema": "", "properties": {}},
    )
    body = {"messages": [{"payload": "x"}]}
    assert (await refusal(admin, f"POST {TOPIC}", body))[0] == 409
    await call(admin, f"POST {TOPICS}/t/terminate")
    assert (await refusal(admin, f"POST {TOPIC}", {"schemaVersion": 0, "messages": [{"payload": "5"}]}))[
        0
    ] == 409


@pytest.mark.usefixtures("topic")
async def test_publish_rate_holds_messages_back(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"POST {TOPICS}/t/publishRate", {"publishThrottlingRateInMsg": 2})
    work = asyncio.ensure_future(results(admin, TOPIC, {"messages": [{"payload": "x"}] * 4}))
    topic = await persistent(broker, "t")
    async with asyncio.timeout(60):
        # A count, which nothing announces.
        while not topic.publish_rate_limited:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert topic.messages_in < 4
    await call(admin, f"DELETE {TOPICS}/t/publishRate")
    assert [one["errorCode"] for one in await work] == [0] * 4


@pytest.mark.usefixtures("topic")
async def test_second_copy_of_a_message_is_stored_once_with_deduplication(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"POST {TOPICS}/t/deduplicationEnabled", True)
    body = {"producerName": "rp", "messages": [{"payload": "x", "sequenceId": 5}]}
    first, second = await results(admin, TOPIC, body), await results(admin, TOPIC, body)
    assert (first[0]["errorCode"], second[0]["messageId"]) == (0, "-1:-1:-1")
    assert (await persistent(broker, "t")).ledger.ledgers.entries == 1


async def test_message_to_a_non_persistent_topic_gets_an_id(admin: ClientSession) -> None:
    path = "/admin/v2/non-persistent/public/default/n"
    await call(admin, f"PUT {path}")
    found = await results(admin, "/topics/non-persistent/public/default/n", {"messages": [{"payload": "x"}]})
    assert found == [{"messageId": "0:0:-1", "errorCode": 0, "schemaVersion": 0}]
    # One that does not exist counts as deleted.
    assert await call(admin, f"DELETE {path}") == (204, "")
    assert await call(admin, f"DELETE {path}") == (204, "")
