"""Handlers of GET_SCHEMA and GET_OR_CREATE_SCHEMA, and the schema in other commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from broker.net.ports import Connection
from broker.schemas.schema import Schema, SchemaType, VersionedSchema
from broker.security.authorization.access import Access, look_up, produce
from broker.service.topics.topic_schemas import schema_id, version_bytes, version_of
from foundation.model.errors import BrokerError, IncompatibleSchema, TopicNotFound
from foundation.model.topic_name import parse_topic_name
from protocol import answers
from protocol import pulsar_api_pb2 as api
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import BaseCommand, CommandGetOrCreateSchema, CommandGetSchema

_VERSION_BYTES = 8


class CommandWithSchema(Protocol):
    """PRODUCER, SUBSCRIBE or GET_OR_CREATE_SCHEMA."""

    @property
    def schema(self) -> api.Schema:
        """The schema, an empty one when the field is absent."""
        ...


def schema_of(command: CommandWithSchema) -> Schema | None:
    """Returns the schema in a command; None when the field is absent."""
    sent = command.schema
    # `type` is required, so it is there when the client sent a schema.
    if not sent.HasField("type"):
        return None
    properties = {pair.key: pair.value for pair in sent.properties}
    return Schema(SchemaType.of_wire(sent.type), sent.schema_data, properties)


def get_schema(cnx: Connection, command: BaseCommand) -> None:
    """Handles GET_SCHEMA: answers with the version that the client names, else with the newest."""
    request = command.getSchema

    def refuse(error: BrokerError) -> bytes:
        return answers.schema_failed(request.request_id, error.code, str(error))

    version: int | None = None
    if request.HasField("schema_version"):
        if not request.schema_version:
            cnx.send(refuse(IncompatibleSchema("Empty schema version")))
            return
        # A shorter one closes the connection, as recorded of Pulsar 4.2.4; of a longer one the first bytes count.
        if len(request.schema_version) < _VERSION_BYTES:
            raise ProtocolError(f"a schema version of {len(request.schema_version)} bytes; 8 are expected")
        version = version_of(request.schema_version)
    cnx.run(command, _get_schema(cnx, request, version), refuse)


def read_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the look-up of the topic. Pulsar asks for no right here and below: any client may read and add schemas."""
    yield look_up(parse_topic_name(command.getSchema.topic))


async def _get_schema(cnx: Connection, request: CommandGetSchema, version: int | None) -> None:
    name = parse_topic_name(request.topic)
    found = await cnx.context.registry.schemas.get(name, version)
    if found is None:
        raise TopicNotFound(f"Topic not found or no-schema {request.topic}")
    cnx.send(
        answers.schema(request.request_id, _on_the_wire(schema_id(name), found), version_bytes(found.version))
    )


def _on_the_wire(name: str, found: VersionedSchema) -> api.Schema:
    # A deletion is answered as a schema of type None without data, as recorded of Pulsar 4.2.4.
    schema = found.schema or Schema(SchemaType.NONE, b"", {})
    sent = api.Schema(name=name, schema_data=schema.data, type=api.Schema.Type.ValueType(schema.type.wire))
    for key, value in schema.properties.items():
        sent.properties.add(key=key, value=value)
    return sent


def get_or_create_schema(cnx: Connection, command: BaseCommand) -> None:
    """Handles GET_OR_CREATE_SCHEMA, by which a connected producer begins to use another schema."""
    request = command.getOrCreateSchema

    def refuse(error: BrokerError) -> bytes:
        return answers.schema_refused(request.request_id, error.code, str(error))

    cnx.run(command, _get_or_create_schema(cnx, request), refuse)


def write_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields publishing to the topic."""
    yield produce(parse_topic_name(command.getOrCreateSchema.topic))


async def _get_or_create_schema(cnx: Connection, request: CommandGetOrCreateSchema) -> None:
    registry = cnx.context.registry
    name = parse_topic_name(request.topic)
    if not await registry.exists(name):
        raise TopicNotFound(f"Topic not found {request.topic}")
    schema = schema_of(request)
    # Here, and nowhere else, the type None means "no schema", as recorded of Pulsar 4.2.4.
    if schema is not None and schema.type is SchemaType.NONE:
        schema = None
    version = await registry.schemas.for_producer(name, schema, request.producerName)
    cnx.send(answers.schema_accepted(request.request_id, version))
