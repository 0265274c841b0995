"""Decodes payloads by their schema into values of JSON, for people who look at a message.

Every type of Pulsar has a form here but PROTOBUF and EXTERNAL, whose definitions only clients know. The bytes of a message
come from any client, so a value is decoded up to limits and refused beyond them. Pure.
"""

from __future__ import annotations

import datetime
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isinf
from typing import Final, NoReturn, TypeVar

from broker.schemas.avro_schema import AvroType, InvalidAvro, parse_avro
from broker.schemas.key_value import split
from broker.schemas.schema import Schema, SchemaType
from foundation.model.errors import BrokerError
from foundation.units import NS_PER_SECOND
from foundation.value import Json

DEPTH_MAX: Final = 60
"""Values inside of values."""
VALUES_MAX: Final = 20_000
"""Values in one message: about 10 ms."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no text has. They are valid UTF-8: shown as text, most of a binary value would be invisible."""
Choice = TypeVar("Choice")
_BITS_MAX: Final = 63
_LENGTH: Final = struct.Struct(">i")


class Undecodable(ValueError):
    """The payload does not fit its schema, or the schema has no form here; the message says why."""


def decode(schema: Schema, payload: bytes, key: bytes = b"") -> Json:
    """Returns the value of a payload. Raises Undecodable.

    `key` is the message's own key: KEY_VALUE messages may have their key there.
    """
    try:
        if schema.type is SchemaType.KEY_VALUE:
            return _key_value(schema, payload, key)
        return _plain(schema, payload)
    except (struct.error, InvalidAvro, IndexError, OverflowError, BrokerError) as error:
        raise Undecodable(f"the payload is no {schema.type.name}: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"the payload is no {schema.type.name}: {type(error).__name__}") from None


def decode_avro(schema: AvroType, payload: bytes) -> Json:
    """Returns the value of a payload whose schema was parsed before. Raises Undecodable."""
    try:
        return _Avro(payload).whole(schema)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"the payload is no {schema.name or schema.kind}: {error}") from None


def _plain(schema: Schema, payload: bytes) -> Json:
    if schema.type is SchemaType.AVRO:
        return _Avro(payload).whole(parse_avro(schema.data))
    if schema.type is SchemaType.JSON:
        return _json(payload)
    if schema.type in (SchemaType.NONE, SchemaType.BYTES):
        raise Undecodable("the message has no schema")
    decoder = _PRIMITIVES.get(schema.type)
    if decoder is None:
        raise Undecodable(f"{schema.type.name} is decoded by clients alone")
    return decoder(payload)


def _json(payload: bytes) -> Json:
    try:
        found: Json = json.loads(payload, parse_constant=_no_constant, parse_float=_finite)
    except (Undecodable, UnicodeDecodeError):
        raise
    except ValueError as error:
        # Besides JSONDecodeError: Python refuses whole numbers of thousands of digits.
        raise Undecodable(f"the payload is no JSON: {error}") from None
    _check_depth(found)
    return found


def _check_depth(value: Json) -> None:
    """Raises Undecodable for values that are too deep: writing them again would need more stack than reading them."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return
    raise Undecodable(f"more than {DEPTH_MAX} values inside of each other")


def _parts(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        # Python would write `Infinity`, and no browser could read the whole answer.
        raise Undecodable(f"{digits[:50]} is larger than any number of JSON's readers")
    return number


def _no_constant(word: str) -> NoReturn:
    # Python reads NaN and infinities, which no browser would.
    raise Undecodable(f"{word} is no JSON")


def _key_value(schema: Schema, payload: bytes, key: bytes) -> Json:
    key_schema, value_schema = split(schema)
    value = payload
    if schema.properties.get("kv.encoding.type", "INLINE") != "SEPARATED":
        (size,) = _LENGTH.unpack_from(payload)
        rest = payload[_LENGTH.size + max(size, 0) :]
        key = payload[_LENGTH.size : _LENGTH.size + max(size, 0)]
        (size,) = _LENGTH.unpack_from(rest)
        value = rest[_LENGTH.size : _LENGTH.size + max(size, 0)]
    return {"key": _part(key_schema, key), "value": _part(value_schema, value)}


def _part(schema: Schema, data: bytes) -> Json:
    if schema.type in (SchemaType.NONE, SchemaType.BYTES):
        return text_or_hex(data)
    return _plain(schema, data)


def readable(data: bytes) -> str | None:
    """Returns the text of bytes; None where they are no UTF-8 or have characters that no text has."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def text_or_hex(data: bytes) -> str:
    """Returns bytes as text where they are readable, else as `0x` and hexadecimal numbers."""
    text = readable(data)
    return f"0x{data.hex()}" if text is None else text


# Primitive types


def _number(form: str) -> Callable[[bytes], Json]:
    parts = struct.Struct(form)

    def decoded(payload: bytes) -> Json:
        (value,) = parts.unpack(payload)
        found: Json = value
        # NaN and infinities are no JSON.
        return str(found) if isinstance(found, float) and found - found != 0 else found

    return decoded


_int64 = struct.Struct(">q")
_int64_int32 = struct.Struct(">qi")
_int64_int64 = struct.Struct(">qq")
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def _boolean(payload: bytes) -> Json:
    (value,) = struct.unpack(">b", payload)
    return bool(value)


def _timestamp(payload: bytes) -> Json:
    (ms,) = _int64.unpack(payload)
    return (_EPOCH + datetime.timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"


def _time(payload: bytes) -> Json:
    (ms,) = _int64.unpack(payload)
    return (_EPOCH + datetime.timedelta(milliseconds=ms)).time().isoformat()


def _instant(payload: bytes) -> Json:
    seconds, ns = _int64_int32.unpack(payload)
    return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat() + f".{ns:09d}Z"


def _local_date(payload: bytes) -> Json:
    (days,) = _int64.unpack(payload)
    return (_EPOCH + datetime.timedelta(days=days)).date().isoformat()


def _local_time(payload: bytes) -> Json:
    (ns,) = _int64.unpack(payload)
    return f"{(_EPOCH + datetime.timedelta(seconds=ns // NS_PER_SECOND)).time().isoformat()}.{ns % NS_PER_SECOND:09d}"


def _local_date_time(payload: bytes) -> Json:
    days, ns = _int64_int64.unpack(payload)
    day = (_EPOCH + datetime.timedelta(days=days)).date().isoformat()
    return f"{day}T{_local_time(_int64.pack(ns))}"


_PRIMITIVES: Final[dict[SchemaType, Callable[[bytes], Json]]] = {
    SchemaType.STRING: lambda payload: payload.decode(),
    SchemaType.BOOLEAN: _boolean,
    SchemaType.INT8: _number(">b"),
    SchemaType.INT16: _number(">h"),
    SchemaType.INT32: _number(">i"),
    SchemaType.INT64: _number(">q"),
    SchemaType.FLOAT: _number(">f"),
    SchemaType.DOUBLE: _number(">d"),
    SchemaType.DATE: _timestamp,
    SchemaType.TIME: _time,
    SchemaType.TIMESTAMP: _timestamp,
    SchemaType.INSTANT: _instant,
    SchemaType.LOCAL_DATE: _local_date,
    SchemaType.LOCAL_TIME: _local_time,
    SchemaType.LOCAL_DATE_TIME: _local_date_time,
}


class _Avro:
    """Reads values in Avro's binary form, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0

    def whole(self, schema: AvroType) -> Json:
        """Returns the one value of the data. Raises Undecodable for a rest after it."""
        value = self._value(schema, 0)
        if self._at != len(self._data):
            raise Undecodable(f"{len(self._data) - self._at} bytes are left after the value")
        return value

    def _value(self, schema: AvroType, depth: int) -> Json:
        self._values += 1
        if depth > DEPTH_MAX or self._values > VALUES_MAX:
            raise Undecodable(f"more than {VALUES_MAX} values, or {DEPTH_MAX} inside of each other")
        simple = _SIMPLE.get(schema.kind)
        if simple is not None:
            return simple(self)
        match schema.kind:
            case "record":
                return {field.name: self._value(field.type, depth + 1) for field in schema.fields}
            case "enum":
                return self._chosen(schema.symbols)
            case "union":
                return self._value(self._chosen(schema.branches), depth + 1)
            case "fixed":
                return text_or_hex(self._take(schema.size))
            case "array":
                return [self._value(schema.branches[0], depth + 1) for _ in self._items()]
            case "map":
                return {self._text(): self._value(schema.branches[0], depth + 1) for _ in self._items()}
        raise Undecodable(f"{schema.kind} is no type of Avro")

    def _chosen(self, choices: Sequence[Choice]) -> Choice:
        number = self._long()
        if not 0 <= number < len(choices):
            raise Undecodable(f"choice {number} of {len(choices)}")
        return choices[number]

    def _items(self) -> Iterator[int]:
        """Yields once for each item of an array or map; these come in blocks, the last one empty."""
        while count := self._long():
            if count < 0:
                # The bytes of the block follow, for readers that skip it.
                self._long()
                count = -count
            if count > VALUES_MAX:
                raise Undecodable(f"a block of {count} items; at most {VALUES_MAX} are shown")
            yield from range(count)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Undecodable(f"{size} bytes are wanted, {len(self._data) - self._at} are left")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > _BITS_MAX:
                raise Undecodable("a number of more than 64 bits")

    def _boolean(self) -> Json:
        return self._take(1) != b"\0"

    def _float(self) -> Json:
        return _float(self._take(4)[::-1])

    def _double(self) -> Json:
        return _double(self._take(8)[::-1])

    def _bytes(self) -> Json:
        return text_or_hex(self._take(self._long()))

    def _text(self) -> str:
        return self._take(self._long()).decode()

    def _null(self) -> Json:
        return None


_float = _number(">f")
_double = _number(">d")
_SIMPLE: Final[dict[str, Callable[[_Avro], Json]]] = {
    "null": _Avro._null,
    "boolean": _Avro._boolean,
    "int": _Avro._long,
    "long": _Avro._long,
    "float": _Avro._float,
    "double": _Avro._double,
    "bytes": _Avro._bytes,
    "string": _Avro._text,
}
