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
    """No form: bytes."""
    STRING = 1
    """Text in UTF-8."""
    JSON = 2
    """A JSON object; its definition is an Avro schema."""
    PROTOBUF = 3
    """A Protobuf message; its definition is an Avro schema."""
    AVRO = 4
    """A value in Avro's binary form."""
    BOOLEAN = 5
    """One byte, 0 or 1."""
    INT8 = 6
    """A number of one byte."""
    INT16 = 7
    """A number of two bytes, big-endian as all that follow."""
    INT32 = 8
    """A number of four bytes."""
    INT64 = 9
    """A number of eight bytes."""
    FLOAT = 10
    """A floating-point number of four bytes."""
    DOUBLE = 11
    """A floating-point number of eight bytes."""
    DATE = 12
    """Milliseconds since 1970."""
    TIME = 13
    """Milliseconds since midnight."""
    TIMESTAMP = 14
    """Milliseconds since 1970."""
    KEY_VALUE = 15
    """A pair; both parts have a schema of their own."""
    INSTANT = 16
    """Seconds and nanoseconds since 1970."""
    LOCAL_DATE = 17
    """Days since 1970."""
    LOCAL_TIME = 18
    """Nanoseconds since midnight."""
    LOCAL_DATE_TIME = 19
    """Days since 1970 and nanoseconds since midnight."""
    PROTOBUF_NATIVE = 20
    """A Protobuf message; its definition has the descriptors."""
    EXTERNAL = 22
    """A form that only clients know."""
    BYTES = -1
    """Bytes without a form."""
    AUTO = -2
    """Older word for AUTO_CONSUME."""
    AUTO_CONSUME = -3
    """A consumer takes every schema of the topic."""
    AUTO_PUBLISH = -4
    """A producer takes the schema of the topic."""

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
