"""Parses Avro's record definitions, which Pulsar uses for AVRO and JSON topics alike, and maps them to Spark types.

The other direction, `definition_of`, gives the sink the schema of the rows it writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pulsar.errors import OptionError

_PLAIN: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True)
class AvroNode:
    """One Avro type, with the types that it is made of. Pickled to the tasks."""

    kind: str
    """Avro's name of the type, for example "record" or "long"."""
    parts: Mapping[str, AvroNode] = field(default_factory=dict)
    """Fields of a record by name, branches of a union by number, `items` of an array, `values` of a map."""
    logical: str = ""
    """Avro's logicalType, for example "timestamp-millis"; empty without one."""
    symbols: tuple[str, ...] = ()
    """Symbols of an enum, in the order of their numbers."""
    size: int = 0
    """Bytes of a fixed."""
    precision: int = 0
    """Digits of a decimal."""
    scale: int = 0
    """Digits of a decimal after the point."""

    def nullable_part(self) -> tuple[int, AvroNode] | None:
        """Returns number and type of the other branch, for a union of null and one other type; else None."""
        branches = list(self.parts.values())
        if self.kind == "union" and len(branches) == 2 and "null" in (branches[0].kind, branches[1].kind):
            number = 1 if branches[0].kind == "null" else 0
            return number, branches[number]
        return None


def parse_definition(text: str) -> AvroNode:
    """Parses JSON text into a record. OptionError where it is none, or contains itself."""
    try:
        found = _parse(json.loads(text), {}, "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OptionError(f"a schema definition cannot be read: {error!r} in {text[:200]!r}") from None
    if found.kind != "record":
        raise OptionError(f"a schema definition is of type {found.kind!r}: a record is expected")
    return found


def _parse(raw: Any, named: dict[str, AvroNode], space: str) -> AvroNode:
    if isinstance(raw, list):
        return AvroNode("union", {str(number): _parse(part, named, space) for number, part in enumerate(raw)})
    if isinstance(raw, str):
        if raw in _PLAIN:
            return AvroNode(raw)
        full = raw if "." in raw or not space else f"{space}.{raw}"
        if full in named or raw in named:
            return named.get(full) or named[raw]
        raise ValueError(f"type {raw!r} is not known (a type that contains itself cannot be columns)")
    kind = raw["type"]
    if not isinstance(kind, str):
        return _parse(kind, named, space)
    space = raw.get("namespace", space)
    node = _parse_complex(raw, kind, named, space)
    if "name" in raw:
        name = raw["name"]
        named[name if "." in name or not space else f"{space}.{name}"] = node
        named.setdefault(name, node)
    return node


def _parse_complex(raw: Mapping[str, Any], kind: str, named: dict[str, AvroNode], space: str) -> AvroNode:
    if kind in ("record", "error"):
        return AvroNode(
            "record", {part["name"]: _parse(part["type"], named, space) for part in raw["fields"]}
        )
    if kind == "enum":
        return AvroNode("enum", symbols=tuple(raw["symbols"]))
    if kind == "array":
        return AvroNode("array", {"items": _parse(raw["items"], named, space)})
    if kind == "map":
        return AvroNode("map", {"values": _parse(raw["values"], named, space)})
    logical = str(raw.get("logicalType", ""))
    if kind == "fixed" or kind in _PLAIN:
        return AvroNode(
            kind,
            logical=logical,
            size=int(raw.get("size", 0)),
            precision=int(raw.get("precision", 0)),
            scale=int(raw.get("scale", 0)),
        )
    return _parse(kind, named, space)


_SPARK_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "null": StringType(),
}
_SPARK_LOGICAL: Final[Mapping[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}


def spark_type(node: AvroNode) -> DataType:
    """Returns Spark's type; a union of several types is a struct member0, member1, … as in Spark's Avro source."""
    if node.kind == "record":
        return spark_struct(node)
    if node.kind == "array":
        return ArrayType(spark_type(node.parts["items"]))
    if node.kind == "map":
        return MapType(StringType(), spark_type(node.parts["values"]))
    if node.kind == "union":
        nullable = node.nullable_part()
        return spark_type(nullable[1]) if nullable else spark_struct(union_members(node))
    if node.logical == "decimal" and node.precision:
        return DecimalType(node.precision, node.scale)
    return _SPARK_LOGICAL.get((node.kind, node.logical), _SPARK_PLAIN[node.kind])


def union_members(node: AvroNode) -> AvroNode:
    """Returns the record member0, member1, … that stands for a union; its null branch has no member."""
    branches = [part for part in node.parts.values() if part.kind != "null"]
    return AvroNode("record", {f"member{number}": part for number, part in enumerate(branches)})


def spark_struct(node: AvroNode) -> StructType:
    """Returns Spark's struct for a record; every field is nullable."""
    return StructType([StructField(name, spark_type(part)) for name, part in node.parts.items()])


_AVRO_PLAIN: Final[Mapping[type[DataType], str | Mapping[str, str]]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def definition_of(schema: StructType, name: str = "topLevelRecord") -> dict[str, Any]:
    """Returns the Avro definition of rows of `schema`; every field is a union of null and its type.

    `topLevelRecord` is the name that Spark's own Avro source gives. OptionError for a type that Avro does not have.
    """
    return {
        "type": "record",
        "name": name,
        "fields": [
            {
                "name": part.name,
                "type": ["null", _avro_type(part.dataType, f"{name}.{part.name}")],
                "default": None,
            }
            for part in schema.fields
        ],
    }


def _avro_type(kind: DataType, name: str) -> Any:
    if isinstance(kind, StructType):
        return definition_of(kind, name.replace(".", "_"))
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if type(kind) in _AVRO_PLAIN:
        return _AVRO_PLAIN[type(kind)]
    if isinstance(kind, DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    raise OptionError(
        f"column {name.partition('.')[2]} is of type {kind.simpleString()}, which cannot be written: cast it to one "
        "that Avro has"
    )
