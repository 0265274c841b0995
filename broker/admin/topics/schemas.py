"""`/admin/v2/schemas`: versions of a topic's schema, and whether a schema would fit.

The topic need not exist, as in Pulsar: a schema may be there before the first client.
"""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import BadRequest, answer, empty, is_true, object_of
from broker.admin.service_view import BROKER
from broker.schemas import key_value
from broker.schemas.schema import Schema, SchemaType, VersionedSchema
from broker.service.namespaces.namespaces import NamespaceNotFound
from broker.service.topics.topic_schemas import TopicSchemas, schema_id
from foundation.model.errors import (
    BrokerError,
    IncompatibleSchema,
    InvalidSchemaData,
    InvalidTopicName,
    TopicNotFound,
)
from foundation.model.position import Position
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name
from foundation.value import Json

_TOPIC = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_FORGOTTEN = -1
"""Version in the answer to a forced deletion, after which numbers begin anew."""


class BadPayload(BrokerError):
    """A schema in a request has an unknown type or does not fit; Pulsar answers such requests with 500."""

    status = 500
    """HTTP status of the answer."""


async def get(request: web.Request) -> web.Response:
    """Returns the newest version, or the one in the path; 404 if there is none or it is deleted."""
    schemas, name = _schemas(request), _topic(request)
    text = request.match_info.get("version")
    try:
        version = None if text is None else int(text)
    except ValueError:
        raise BadPayload(f"{text!r} is no version: a number is expected") from None
    found = await schemas.get(name, version)
    if found is None or found.schema is None:
        raise TopicNotFound("Schema not found")
    return answer(_shown(found))


async def get_all(request: web.Request) -> web.Response:
    """Returns all versions since the last deletion, oldest first."""
    found = await _schemas(request).registry.versions(schema_id(_topic(request)))
    return answer({"getSchemaResponses": [_shown(version) for version in found]})


async def metadata(request: web.Request) -> web.Response:
    """Returns the places of the versions and deletions; an empty answer for a topic that never had a schema.

    The ledger id is -1 on a store of one broker, where definitions are in no ledger.
    """
    found = await _schemas(request).registry.places(schema_id(_topic(request)))
    if not found:
        return empty()
    index: list[Json] = [_place(version, place) for version, place in found]
    return answer({"info": index[-1], "index": index})


async def add(request: web.Request) -> web.Response:
    """Adds a version and returns its number; 409 if it does not fit, 422 if it cannot be read."""
    schemas, name = _schemas(request), _topic(request)
    _check_namespace(request, name)
    try:
        schema = await _schema(request)
        version = await schemas.registry.add(schema_id(name), schema, schemas.strategy(name))
    except IncompatibleSchema as error:
        # Pulsar's answer is a page of its HTTP server here. The reason must be one line.
        page = web.HTTPUnprocessableEntity if isinstance(error, InvalidSchemaData) else web.HTTPConflict
        raise page(reason=" ".join(str(error).split())) from None
    return answer({"version": {"version": version}})


async def delete(request: web.Request) -> web.Response:
    """Deletes all versions; with `force` their numbers begin anew.

    Without it, the deletion takes a number, and its answer says which.
    """
    registry, name = _schemas(request).registry, _topic(request)
    # Pulsar stores a deletion for a namespace that does not exist; nothing would ever remove it.
    _check_namespace(request, name)
    if is_true(request, "force"):
        await registry.forget(schema_id(name))
        return answer({"version": _FORGOTTEN})
    return answer({"version": await registry.delete(schema_id(name))})


async def compatibility(request: web.Request) -> web.Response:
    """Returns 202 if the schema would fit; 500 with the reason if it would not, as Pulsar does."""
    schemas, name = _schemas(request), _topic(request)
    _check_namespace(request, name)
    strategy = schemas.strategy(name)
    try:
        await schemas.registry.check(schema_id(name), await _schema(request), strategy)
    except IncompatibleSchema as error:
        raise BadPayload(str(error)) from None
    result = answer({"schemaCompatibilityStrategy": strategy.value, "compatibility": True})
    result.set_status(202)
    return result


async def version_of(request: web.Request) -> web.Response:
    """Returns the version with exactly this definition, -1 if there is none."""
    schema = await _schema(request)
    found = await _schemas(request).registry.find_same(schema_id(_topic(request)), schema)
    return answer({"version": -1 if found is None else found})


def _schemas(request: web.Request) -> TopicSchemas:
    return request.app[BROKER].registry.schemas


def _check_namespace(request: web.Request, name: TopicName) -> None:
    if not request.app[BROKER].namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace does not exist")


def _topic(request: web.Request) -> TopicName:
    match = request.match_info
    try:
        return parse_topic_name(f"{PERSISTENT}://{match['tenant']}/{match['namespace']}/{match['topic']}")
    except InvalidTopicName:
        raise InvalidTopicName("Topic name is not valid") from None


def _place(version: int, place: Position) -> dict[str, Json]:
    return {"ledgerId": place.ledger_id, "entryId": place.entry_id, "version": version}


def _shown(found: VersionedSchema) -> dict[str, Json]:
    schema = found.schema
    assert schema is not None, "deletions are not shown"
    text = schema.data.decode(errors="replace")
    if schema.type is SchemaType.KEY_VALUE:
        text = key_value.to_json(schema)
    return {
        "version": found.version,
        "type": schema.type.name,
        "timestamp": found.created_ms,
        "data": text,
        "properties": dict(schema.properties),
    }


async def _schema(request: web.Request) -> Schema:
    """Returns the schema in the body.

    BadRequest without its members, BadPayload for an unknown type, InvalidSchemaData for a key/value schema of another
    form.
    """
    body = await object_of(request)
    word, text, properties = body.get("type"), body.get("schema"), body.get("properties")
    if not isinstance(word, str):
        raise BadRequest('Give the schema as {"type": …, "schema": …, "properties": {}}')
    if word not in SchemaType.__members__:
        raise BadPayload(f"type={word[:50]}: one of {', '.join(SchemaType.__members__)} is expected")
    if not isinstance(text, str):
        raise BadRequest("schema must be given as a text, empty for a primitive type")
    if not isinstance(properties, dict | None) or not all(
        isinstance(value, str) for value in (properties or {}).values()
    ):
        raise BadRequest("properties must be a JSON object of texts")
    kind = SchemaType[word]
    data = key_value.from_json(text) if kind is SchemaType.KEY_VALUE else text.encode(errors="replace")
    return Schema(kind, data, {key: str(value) for key, value in (properties or {}).items()})


SCHEMA_ROUTES = (
    web.get(_TOPIC + "/schema", get),
    web.get(_TOPIC + "/schema/{version}", get),
    web.get(_TOPIC + "/schemas", get_all),
    web.get(_TOPIC + "/metadata", metadata),
    web.post(_TOPIC + "/schema", add),
    web.delete(_TOPIC + "/schema", delete),
    web.post(_TOPIC + "/compatibility", compatibility),
    web.post(_TOPIC + "/version", version_of),
)
