"""Payloads decoded by their schema; Avro's binary form is written by a library of others."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from broker.schemas.decoding import VALUES_MAX, Undecodable, decode
from broker.schemas.schema import Schema, SchemaType

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "share", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "yes", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": "string"}},
        {"name": "next", "type": ["null", "Order"]},
    ],
}


def order(number: int, following: object = None) -> dict[str, Any]:
    return {
        "id": number,
        "text": None if number % 2 else "täxt",
        "share": number / 3,
        "small": 0.5,
        "yes": bool(number % 2),
        "raw": b"plain",
        "kind": "AB"[number % 2],
        "four": b"abcd",
        "list": [5, -5, 0],
        "map": {"a": "1", "b": ""},
        "next": following,
    }


def written(value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(RECORD), value)
    return out.getvalue()


def avro(definition: object = RECORD) -> Schema:
    return Schema(SchemaType.AVRO, json.dumps(definition).encode(), {})


@pytest.mark.parametrize("number", [0, 1, -1, 2**62, -(2**63), 300])
def test_avro_values_are_those_of_another_writer(number: int) -> None:
    value = order(number, order(7))
    found = decode(avro(), written(value))
    for one in (value, value["next"]):
        one["raw"], one["four"] = one["raw"].decode(), one["four"].decode()
    assert found == value


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"text \n", "text \n"), (b"\x00\x01\xff\xfe", "0x0001fffe"), (b"\x00\x01\x02\x03", "0x00010203")],
)
def test_bytes_in_a_value_that_are_no_text_are_hexadecimal(data: bytes, shown: str) -> None:
    schema = fastavro.parse_schema(
        {"type": "record", "name": "r", "fields": [{"name": "b", "type": "bytes"}]}
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"b": data})
    assert decode(avro(schema), out.getvalue()) == {"b": shown}


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (SchemaType.STRING, "ä".encode(), "ä"),
        (SchemaType.BOOLEAN, b"\x01", True),
        (SchemaType.INT8, b"\xff", -1),
        (SchemaType.INT16, b"\x01\x00", 256),
        (SchemaType.INT32, struct.pack(">i", -7), -7),
        (SchemaType.INT64, struct.pack(">q", 2**40), 2**40),
        (SchemaType.FLOAT, struct.pack(">f", 0.5), 0.5),
        (SchemaType.DOUBLE, struct.pack(">d", float("nan")), "nan"),
        (SchemaType.DATE, struct.pack(">q", 86_400_000), "1970-01-02T00:00:00.000Z"),
        (SchemaType.TIME, struct.pack(">q", 3_600_000), "01:00:00"),
        (SchemaType.INSTANT, struct.pack(">qi", 1, 5), "1970-01-01T00:00:01.000000005Z"),
        (SchemaType.LOCAL_DATE, struct.pack(">q", 31), "1970-02-01"),
        (SchemaType.LOCAL_TIME, struct.pack(">q", 61 * 10**9 + 1), "00:01:01.000000001"),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 1, 0), "1970-01-02T00:00:00.000000000"),
        (SchemaType.JSON, b'{"a": [1, null]}', {"a": [1, None]}),
    ],
)
def test_other_types_have_a_value_in_json(kind: SchemaType, payload: bytes, value: object) -> None:
    assert decode(Schema(kind, b"", {}), payload) == value


def test_key_and_value_are_decoded_apart() -> None:
    properties = {"key.schema.type": "INT32", "value.schema.type": "JSON", "kv.encoding.type": "INLINE"}
    definition = struct.pack(">i", 0) + struct.pack(">i", 0)
    key, value = struct.pack(">i", 5), b'{"v":1}'
    inline = struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    expected = {"key": 5, "value": {"v": 1}}
    assert decode(Schema(SchemaType.KEY_VALUE, definition, properties), inline) == expected
    separated = {**properties, "kv.encoding.type": "SEPARATED"}
    assert decode(Schema(SchemaType.KEY_VALUE, definition, separated), value, key) == expected


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (avro(), b""),
        (avro(), written(order(1))[:-3]),
        (avro(), written(order(1)) + b"x"),
        (avro(), b"\xff" * 30),
        (avro({"type": "array", "items": "null"}), b"\x80\x80\x80\x80\x10"),
        (avro({"type": "array", "items": "null"}), (b"\xfe\xff\x01" * 3 + b"\0")),
        (avro("string"), b"\x02\xff"),
        (Schema(SchemaType.AVRO, b"no schema", {}), b"x"),
        (Schema(SchemaType.JSON, b"", {}), b"{"),
        (Schema(SchemaType.JSON, b"", {}), b"[NaN]"),
        (Schema(SchemaType.JSON, b"", {}), b"[" * 100_000),
        (Schema(SchemaType.INT32, b"", {}), b"123"),
        (Schema(SchemaType.DATE, b"", {}), struct.pack(">q", 2**62)),
        (Schema(SchemaType.STRING, b"", {}), b"\xff"),
        (Schema(SchemaType.KEY_VALUE, b"", {}), b"x"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"", {}), b"x"),
        (Schema(SchemaType.NONE, b"", {}), b"x"),
    ],
)
def test_payload_that_does_not_fit_is_refused(schema: Schema, payload: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(schema, payload)


def test_recursive_value_is_bounded() -> None:
    value = None
    for number in range(40):
        value = order(number, value)
    with pytest.raises(Undecodable, match=str(VALUES_MAX)):
        decode(avro(), written(value))


@pytest.mark.parametrize("payload", [b"1" * 5000, b"1e999", b'{"a": -1e999}', b"[" * 900 + b"]" * 900])
def test_json_that_other_readers_cannot_take_is_refused(payload: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(Schema(SchemaType.JSON, b"{}", {}), payload)


def test_json_keeps_what_other_readers_take() -> None:
    payload = b'{"id": 1234567890123456789, "list": [1.5, null, "a"]}'
    assert decode(Schema(SchemaType.JSON, b"{}", {}), payload) == json.loads(payload)
