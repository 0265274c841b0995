"""`/admin/v2/schemas`: versions, deletions, questions about a schema, and Pulsar's answers to bad requests."""

from __future__ import annotations

import json

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call, refusal

PATH = "/admin/v2/schemas/public/default/t"
AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]})
GROWN = AVRO.replace("}]}", '}, {"name": "b", "type": "int", "default": 0}]}')
OTHER = AVRO.replace('"a"', '"z"')


def body(definition: str, kind: str = "AVRO", **properties: str) -> dict[str, object]:
    return {"type": kind, "schema": definition, "properties": properties}


async def shown(admin: ClientSession, path: str) -> dict[str, object]:
    status, found = await call(admin, f"GET {path}")
    assert status == 200
    assert isinstance(found, dict)
    assert found.pop("timestamp") > 1_700_000_000_000
    return found


async def test_versions_are_added_and_read(admin: ClientSession) -> None:
    assert await call(admin, f"POST {PATH}/schema", body(AVRO, k="v")) == (200, {"version": {"version": 0}})
    assert await call(admin, f"POST {PATH}/schema", body(GROWN)) == (200, {"version": {"version": 1}})
    assert await call(admin, f"POST {PATH}/schema", body(AVRO)) == (200, {"version": {"version": 0}})
    first = {"version": 0, "type": "AVRO", "data": AVRO, "properties": {"k": "v"}}
    assert await shown(admin, f"{PATH}/schema/0") == first
    assert await shown(admin, "/admin/v2/schemas/public/default/t-partition-3/schema/0") == first
    assert (await shown(admin, f"{PATH}/schema"))["version"] == 1
    _, found = await call(admin, f"GET {PATH}/schemas")
    assert isinstance(found, dict)
    assert [one["version"] for one in found["getSchemaResponses"]] == [0, 1]
    place = {"ledgerId": -1, "entryId": 0}
    listed = {"info": {**place, "version": 1}, "index": [{**place, "version": 0}, {**place, "version": 1}]}
    assert await call(admin, f"GET {PATH}/metadata") == (200, listed)
    for version in ("2", "-1"):
        assert await refusal(admin, f"GET {PATH}/schema/{version}") == (404, "Schema not found")
    assert (await refusal(admin, f"GET {PATH}/schema/x"))[0] == 500


async def test_topic_without_a_schema_answers_like_pulsar(admin: ClientSession) -> None:
    assert await refusal(admin, f"GET {PATH}/schema") == (404, "Schema not found")
    assert await call(admin, f"GET {PATH}/schemas") == (200, {"getSchemaResponses": []})
    assert await call(admin, f"GET {PATH}/metadata") == (200, "")
    assert await call(admin, f"POST {PATH}/version", body(AVRO)) == (200, {"version": -1})
    fits = {"schemaCompatibilityStrategy": "FULL", "compatibility": True}
    assert await call(admin, f"POST {PATH}/compatibility", body(AVRO)) == (202, fits)
    assert await call(admin, f"DELETE {PATH}/schema?force=true") == (200, {"version": -1})
    assert await call(admin, f"DELETE {PATH}/schema") == (200, {"version": 0})


async def test_deletion_hides_all_versions(admin: ClientSession) -> None:
    await call(admin, f"POST {PATH}/schema", body(AVRO))
    assert await call(admin, f"DELETE {PATH}/schema") == (200, {"version": 1})
    for path in (f"{PATH}/schema", f"{PATH}/schema/0", f"{PATH}/schema/1"):
        assert await refusal(admin, f"GET {path}") == (404, "Schema not found")
    assert await call(admin, f"GET {PATH}/schemas") == (200, {"getSchemaResponses": []})
    assert await call(admin, f"POST {PATH}/schema", body(OTHER)) == (200, {"version": {"version": 2}})
    _, found = await call(admin, f"GET {PATH}/metadata")
    assert isinstance(found, dict)
    assert [one["version"] for one in found["index"]] == [0, 1, 2], "with the deletion, as in Pulsar"
    assert await call(admin, f"DELETE {PATH}/schema?force=true") == (200, {"version": -1})
    assert await call(admin, f"POST {PATH}/schema", body(AVRO)) == (200, {"version": {"version": 0}})


async def test_schema_that_does_not_fit_is_a_conflict(admin: ClientSession) -> None:
    await call(admin, f"POST {PATH}/schema", body(AVRO))
    assert (await call(admin, f"POST {PATH}/schema", body(OTHER)))[0] == 409
    assert (await call(admin, f"POST {PATH}/schema", body("", "STRING")))[0] == 409
    status, reason = await refusal(admin, f"POST {PATH}/compatibility", body(OTHER))
    assert (status, "cannot read data" in reason) == (500, True)
    namespace = "/admin/v2/namespaces/public/default"
    await call(admin, f"PUT {namespace}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    assert await call(admin, f"POST {PATH}/schema", body(OTHER)) == (200, {"version": {"version": 1}})


async def test_version_is_found_by_its_bytes_alone(admin: ClientSession) -> None:
    await call(admin, f"POST {PATH}/schema", body(AVRO))
    assert await call(admin, f"POST {PATH}/version", body(AVRO)) == (200, {"version": 0})
    assert await call(admin, f"POST {PATH}/version", body(AVRO + " ")) == (200, {"version": -1})
    assert await call(admin, f"POST {PATH}/version", body(AVRO, "JSON")) == (200, {"version": -1})


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (body("{"), 422),
        (body("x", "STRING"), 422),
        (body("", "AUTO_CONSUME"), 422),
        (body("x", "PROTOBUF_NATIVE"), 422),
        (body("x", "KEY_VALUE"), 422),
        (body(AVRO, "avro"), 500),
        ({"type": "AVRO"}, 400),
        ({"schema": AVRO}, 400),
        (None, 400),
        ([], 400),
        ({"type": "STRING", "schema": "", "properties": {"a": 1}}, 400),
    ],
)
async def test_bad_schema_is_refused_and_not_stored(
    admin: ClientSession, broker: BrokerService, sent: object, status: int
) -> None:
    assert (await call(admin, f"POST {PATH}/schema", sent))[0] == status
    assert await broker.registry.schemas.registry.get("public/default/t") is None


async def test_version_of_no_schema_is_a_bad_request(admin: ClientSession) -> None:
    for data in (b"null", b"", b"{}"):
        async with admin.post(f"{PATH}/version", data=data) as answer:
            assert answer.status == 400


async def test_missing_namespace_is_not_found_and_nothing_is_stored(admin: ClientSession) -> None:
    path = "/admin/v2/schemas/public/nowhere/t"
    for line in (f"POST {path}/schema", f"POST {path}/compatibility", f"DELETE {path}/schema"):
        assert await refusal(admin, line, body(AVRO)) == (404, "Namespace does not exist")
    assert await refusal(admin, f"GET {path}/schema") == (404, "Schema not found")


async def test_key_value_schema_is_shown_as_json(admin: ClientSession) -> None:
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    parts = json.dumps({"key": "", "value": json.loads(AVRO)})
    sent = {"type": "KEY_VALUE", "schema": parts, "properties": types}
    assert await call(admin, f"POST {PATH}/schema", sent) == (200, {"version": {"version": 0}})
    found = await shown(admin, f"{PATH}/schema")
    assert json.loads(str(found["data"])) == {"key": "", "value": json.loads(AVRO)}
    assert found["properties"] == types
