"""Checks one schema by itself: which definitions Pulsar accepts, and when it takes two for the same.

Pure: no I/O. Large definitions take some 100 ms, so `schema_registry` calls this in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.schemas import key_value, protobuf_native
from broker.schemas.avro_schema import InvalidAvro, canonical_text, parse_avro
from broker.schemas.schema import AVRO_BASED, CLIENT_SIDE, Schema, SchemaType, hash_of
from foundation.model.errors import InvalidSchemaData

SCHEMA_BYTES_MAX: Final = 900_000
"""Bytes of a schema's data and properties. A version is one node of ZooKeeper, which takes 1,000,000 bytes."""
_NOTHING_IN_PYTHON: Final = b"null"
"""Pulsar's Python client sends this as the definition of a STRING schema; Pulsar accepts it for this type alone."""
_WITHOUT_CHECK: Final = frozenset((SchemaType.NONE, SchemaType.BYTES, SchemaType.EXTERNAL))


def check_definition(schema: Schema) -> bytes | None:
    """Returns the hash of the canonical form of an Avro definition, None for other types.

    InvalidSchemaData refuses a definition that its type does not allow.
    """
    if schema.type in CLIENT_SIDE:
        raise InvalidSchemaData(f"Schema {schema.type.name} is a client-side schema type")
    if schema.type in _WITHOUT_CHECK:
        return None
    return _CHECKS.get(schema.type, _check_primitive)(schema)


def check_size(schema: Schema) -> None:
    """Refuses a schema of more than SCHEMA_BYTES_MAX bytes with InvalidSchemaData."""
    size = len(schema.data) + sum(len(f"{key}{value}".encode()) for key, value in schema.properties.items())
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchemaData(f"a schema of {size} bytes is too large; at most {SCHEMA_BYTES_MAX} are kept")


def _check_avro(schema: Schema) -> bytes:
    try:
        parsed = parse_avro(schema.data)
    except InvalidAvro as error:
        raise InvalidSchemaData(
            f"Invalid schema definition data for {schema.type.name} schema: {error}"
        ) from None
    if schema.type is SchemaType.AVRO and parsed.kind == "union":
        raise InvalidSchemaData("Avro schema typed [UNION] is not supported")
    return hash_of(canonical_text(parsed))


def _check_native(schema: Schema) -> None:
    protobuf_native.root_message(schema.data)


def _check_key_value(schema: Schema) -> None:
    for part in key_value.split(schema):
        check_definition(part)


def _check_string(schema: Schema) -> None:
    if schema.data != _NOTHING_IN_PYTHON:
        _check_primitive(schema)


def _check_primitive(schema: Schema) -> None:
    if schema.data:
        raise InvalidSchemaData(
            f"A {schema.type.name} schema has no definition, but {len(schema.data)} bytes came"
        )


_CHECKS: Final[Mapping[SchemaType, Callable[[Schema], bytes | None]]] = {
    **dict.fromkeys(AVRO_BASED, _check_avro),
    SchemaType.STRING: _check_string,
    SchemaType.PROTOBUF_NATIVE: _check_native,
    SchemaType.KEY_VALUE: _check_key_value,
}
