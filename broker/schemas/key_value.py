"""Key/value schemas: two schemas in one definition, and their form in the admin API.

Data are two blocks, key and value, each with its length as a signed 32-bit number in front (-1 = nothing). The types of
both are in the properties. Whether keys travel inside of messages or beside them (`kv.encoding.type`) is in the properties
too; it has no influence on versions and compatibility, as in Pulsar.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from broker.schemas.schema import AVRO_BASED, Schema, SchemaType
from foundation.model.errors import InvalidSchemaData
from foundation.value import Json

_LENGTH: Final = struct.Struct(">i")
_AS_JSON: Final = AVRO_BASED | {SchemaType.PROTOBUF_NATIVE}
PARTS: Final = ("key", "value")
"""Names of the parts, in their order in the data."""


def split(schema: Schema) -> tuple[Schema, Schema]:
    """Returns the schemas of key and value. InvalidSchemaData when the data or a type cannot be read."""
    blocks, rest = [], schema.data
    for part in PARTS:
        if len(rest) < _LENGTH.size:
            raise InvalidSchemaData(f"the schema of the {part} is missing in a key/value schema")
        (length,) = _LENGTH.unpack_from(rest)
        rest = rest[_LENGTH.size :]
        if length > len(rest):
            raise InvalidSchemaData(f"the schema of the {part} has {len(rest)} of {length} bytes")
        blocks.append(rest[: max(length, 0)])
        rest = rest[max(length, 0) :]
    key, value = (
        Schema(_type_of(schema, part), block, {}) for part, block in zip(PARTS, blocks, strict=True)
    )
    return key, value


def _type_of(schema: Schema, part: str) -> SchemaType:
    word = schema.properties.get(f"{part}.schema.type", SchemaType.BYTES.name)
    if word not in SchemaType.__members__ or word == SchemaType.KEY_VALUE.name:
        raise InvalidSchemaData(f"{word[:50]!r} is no type for the {part} of a key/value schema")
    return SchemaType[word]


def to_json(schema: Schema) -> str:
    """Returns the definition as the admin API shows it: both parts as JSON, "" for primitive types."""
    parts: dict[str, Json] = {}
    for name, part in zip(PARTS, split(schema), strict=True):
        parts[name] = json.loads(part.data) if part.type in _AS_JSON and part.data else ""
    return json.dumps(parts, separators=(",", ":"))


def from_json(text: str) -> bytes:
    """Returns the data for a definition in the form of `to_json`. InvalidSchemaData for another form."""
    try:
        parts = json.loads(text)
        blocks = [parts[name] for name in PARTS]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = 'a key/value schema must be given as {"key": schema, "value": schema}'
        raise InvalidSchemaData(message) from None
    data = b""
    for block in blocks:
        encoded = (block if isinstance(block, str) else json.dumps(block, separators=(",", ":"))).encode()
        data += _LENGTH.pack(len(encoded)) + encoded
    return data
