"""Encodes values of JSON in Avro's binary form, for messages that the broker itself writes. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from broker.schemas.avro_schema import AvroType
from foundation.value import Json

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_END_OF_ITEMS: Final = b"\0"


class Unencodable(ValueError):
    """The value does not fit the schema; the message says why."""


def encode(schema: AvroType, value: Json) -> bytes:
    """Returns the value in Avro's form, as `decoding.decode_avro` gave it. Raises Unencodable.

    A record's field that the value lacks counts as null. Members without a field are left out.
    """
    parts: list[bytes] = []
    _encode(schema, value, parts)
    return b"".join(parts)


def _encode(schema: AvroType, value: Json, parts: list[bytes]) -> None:
    match schema.kind, value:
        case "record", dict():
            for field in schema.fields:
                try:
                    _encode(field.type, value.get(field.name), parts)
                except Unencodable as error:
                    raise Unencodable(f"{field.name}: {error}") from None
        case "enum", str() if value in schema.symbols:
            parts.append(_long(list(schema.symbols).index(value)))
        case "union", _:
            number = _branch(schema, value)
            parts.append(_long(number))
            _encode(schema.branches[number], value, parts)
        case "array", list():
            _encode_items(schema.branches[0], value, parts)
        case "map", dict():
            _encode_items(schema.branches[0], value, parts)
        case _ if _fits(schema, value):
            parts.append(_SIMPLE[schema.kind](value))
        case _:
            raise Unencodable(f"{str(value)[:50]!r} is no {schema.name or schema.kind}")


def _encode_items(schema: AvroType, items: list[Json] | dict[str, Json], parts: list[bytes]) -> None:
    if items:
        parts.append(_long(len(items)))
    for item in items:
        if isinstance(items, dict) and isinstance(item, str):
            parts.append(_text(item))
            item = items[item]
        _encode(schema, item, parts)
    parts.append(_END_OF_ITEMS)


def _branch(schema: AvroType, value: Json) -> int:
    """Returns the number of the first branch of a union that may hold the value."""
    for number, branch in enumerate(schema.branches):
        if _fits(branch, value):
            return number
    kinds = ", ".join(branch.name or branch.kind for branch in schema.branches)
    raise Unencodable(f"{str(value)[:50]!r} is none of {kinds}")


def _fits(schema: AvroType, value: Json) -> bool:
    match schema.kind:
        case "int":
            return type(value) is int and -(2**31) <= value < 2**31
        case "long":
            return type(value) is int and -(2**63) <= value < 2**63
        case "double" | "float":
            return type(value) in (int, float)
        case "enum":
            return value in schema.symbols
        case kind:
            return kind in _TYPES and isinstance(value, _TYPES[kind])


def _long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


_TYPES: Final[Mapping[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "string": str,
    "record": dict,
    "map": dict,
    "array": list,
}
_SIMPLE: Final[Mapping[str, Callable[..., bytes]]] = {
    "null": lambda _: b"",
    "boolean": lambda value: b"\1" if value else b"\0",
    "int": _long,
    "long": _long,
    "double": _DOUBLE.pack,
    "float": _FLOAT.pack,
    "string": _text,
}
"""By kind; `_fits` has checked the value."""
