"""Avro, column by column: what is written is read again, evolution fits older values, nonsense is refused."""

from __future__ import annotations

import datetime
import json
import random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pulsar.columns.avro_reader import read_records  # noqa: E402
from pyspark_pulsar.columns.avro_schema import definition_of, parse_definition, spark_struct  # noqa: E402
from pyspark_pulsar.errors import MalformedEntry, OptionError  # noqa: E402
from pyspark_pulsar.writing.avro_writer import write_records  # noqa: E402

INNER = StructType([StructField("x", IntegerType()), StructField("y", StringType())])
ROWS = StructType(
    [
        StructField("a", IntegerType()),
        StructField("b", LongType()),
        StructField("c", StringType()),
        StructField("d", DoubleType()),
        StructField("e", FloatType()),
        StructField("f", BooleanType()),
        StructField("g", BinaryType()),
        StructField("h", DateType()),
        StructField("i", TimestampType()),
        StructField("j", INNER),
        StructField("k", ArrayType(StringType())),
        StructField("l", MapType(StringType(), LongType())),
        StructField("m", ArrayType(INNER)),
    ]
)


def random_row(chance: random.Random, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "a": chance.randint(-(2**31), 2**31 - 1),
        "b": chance.randint(-(2**63), 2**63 - 1),
        "c": "é" * chance.randint(0, 200),
        "d": chance.random(),
        "e": 0.5,
        "f": bool(number % 2),
        "g": bytes(number % 7),
        "h": datetime.date(2020, 1, 1 + number % 28),
        "i": datetime.datetime(2024, 1, 1, 0, 0, 0, number, tzinfo=datetime.UTC),
        "j": {"x": number, "y": None if number % 3 else "s"},
        "k": [f"i{item}" if item % 2 else None for item in range(number % 5)],
        "l": [(f"k{item}", item) for item in range(number % 4)],
        "m": [{"x": item, "y": "deep"} for item in range(number % 3)],
    }
    return {name: None if chance.random() < 0.2 else value for name, value in row.items()}


def read_back(written: Any, schema: Any, definition: str) -> list[dict[str, Any]]:
    data = np.concatenate([np.frombuffer(written.buffers()[2], np.uint8), np.zeros(16, np.uint8)])
    offsets = np.frombuffer(written.buffers()[1], np.int32)[: len(written) + 1].astype(np.int64)
    found = read_records(data, offsets[:-1], offsets[1:], parse_definition(definition))
    arrays = [found[field.name].cast(field.type) for field in schema]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(arrays, schema=schema).to_pylist()
    return rows


@pytest.mark.parametrize("part", [slice(0, 300), slice(100, 150), slice(7, 8)])
def test_avro_reader_reads_all_types_as_written(part: slice) -> None:
    chance = random.Random(3)
    schema = to_arrow_schema(ROWS, timezone="UTC")
    whole = pa.RecordBatch.from_pylist([random_row(chance, number) for number in range(300)], schema=schema)
    batch = whole.slice(part.start, part.stop - part.start)
    definition = json.dumps(definition_of(ROWS))
    assert spark_struct(parse_definition(definition)) == ROWS
    assert read_back(write_records(batch), schema, definition) == batch.to_pylist()


def zigzag_bytes(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def read_one(value: bytes, definition: dict[str, Any]) -> dict[str, Any]:
    data = np.frombuffer(value + bytes(16), np.uint8)
    found = read_records(
        data, np.array([0]), np.array([len(value)]), parse_definition(json.dumps(definition))
    )
    return {name: column.to_pylist()[0] for name, column in found.items()}


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x02", "B"),
        ({"type": "fixed", "name": "f", "size": 3}, b"xyz", b"xyz"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, b"\x04\xff\x38", -2),
        (["int", "null"], b"\x02", None),
        (["int", "null"], b"\x00\x0e", 7),
        (["null", "int", "string"], b"\x04\x04hi", {"member0": None, "member1": "hi"}),
        (["null", "int", "string"], b"\x00", None),
        # A block with its size, as writers may put it, so that readers can skip it.
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x00", [1, 2]),
        ({"type": "array", "items": "int"}, b"\x02\x02\x02\x06\x00", [1, 3]),
        ({"type": "map", "values": "int"}, b"\x02\x02a\x0a\x00", [("a", 5)]),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            zigzag_bytes(1),
            datetime.timedelta(milliseconds=1),
        ),
    ],
)
def test_avro_reader_reads_types_that_spark_does_not_write(kind: Any, value: bytes, expected: Any) -> None:
    found = read_one(value, record(kind))["v"]
    if isinstance(expected, datetime.timedelta):
        expected = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + expected
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", b""),
        ("int", b"\x02\x02"),
        ("string", b"\x7f"),
        ("string", b"\x01"),
        (["null", "int"], b"\x08\x02"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02"),
    ],
)
def test_avro_reader_refuses_bytes_that_do_not_fit_the_schema(kind: Any, value: bytes) -> None:
    with pytest.raises(MalformedEntry, match="not of the topic's Avro schema"):
        read_one(value, record(kind))


@pytest.mark.parametrize("text", ["{", '"int"', '{"type": "record", "name": "r"}', '{"type": "never"}'])
def test_parse_definition_refuses_text_that_is_no_record(text: str) -> None:
    with pytest.raises(OptionError, match="schema definition"):
        parse_definition(text)


def test_parse_definition_refuses_a_record_within_itself() -> None:
    tree = {"type": "record", "name": "t", "fields": [{"name": "next", "type": ["null", "t"]}]}
    with pytest.raises(OptionError, match="contains itself"):
        parse_definition(json.dumps(tree))
