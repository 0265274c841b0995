"""Schema: a type, its definition, and properties, as a client sends them."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

HASH_BYTES: Final = 16
"""Length of a hash of a schema's data."""
_AUTO_CONSUME_ON_THE_WIRE: Final = 21


class SchemaType(enum.IntEnum):
    """Pulsar's SchemaType; the names are those of the admin API.

    The numbers are those of the wire, except below 0: AUTO_CONSUME is 21 there, and the others do not occur.
    """

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 22
    BYTES = -1
    AUTO = -2
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4

    @classmethod
    def of_wire(cls, number: int) -> SchemaType:
        """Returns the type of a `Schema.Type` on the wire."""
        return cls.AUTO_CONSUME if number == _AUTO_CONSUME_ON_THE_WIRE else cls(number)

    @property
    def wire(self) -> int:
        """Number in an answer; BYTES goes as None, as in Pulsar."""
        return max(self, 0)


AVRO_BASED: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))
"""Types whose definition is the JSON text of an Avro schema."""
CLIENT_SIDE: Final = frozenset((SchemaType.AUTO, SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH))
"""Types that tell a client what to do; no topic has one."""


class Schema(NamedTuple):
    """A schema without its version."""

    type: SchemaType
    """Decides how `data` is read."""
    data: bytes
    """The definition, b"" for primitive types."""
    properties: Mapping[str, str]
    """Attributes that the client gave; those of a key/value schema name the types of both parts."""

    @property
    def data_hash(self) -> bytes:
        """First bytes of SHA-256 over `data`."""
        return hash_of(self.data)


class VersionedSchema(NamedTuple):
    """A schema as the registry keeps it."""

    version: int
    """From 0 on, unique for its topic."""
    schema: Schema | None
    """None for the mark that deletes all versions before it."""
    created_ms: int
    """Milliseconds since 1970."""


def hash_of(data: bytes) -> bytes:
    """Returns the hash that tells definitions apart."""
    return hashlib.sha256(data).digest()[:HASH_BYTES]
