"""Compares a new schema with older ones by Pulsar's strategies.

BACKWARD: the new schema reads data of the old one. FORWARD: the old one reads data of the new one. FULL: both. The
TRANSITIVE forms ask this of all versions, the others of the newest alone. Only AVRO and JSON are resolved field by field;
a native Protobuf schema must keep its root message, and other types need an equal type, as in Apache Pulsar 4.2.4.

Pure: no I/O. Large schemas take some 100 ms, so `schema_registry` calls this in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.schemas import key_value
from broker.schemas.avro_resolution import TooComplex, can_read
from broker.schemas.avro_schema import AvroType, InvalidAvro, parse_avro
from broker.schemas.protobuf_native import root_message
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.strategy import Strategy
from foundation.model.errors import IncompatibleSchema


def check_types(old: SchemaType, new: SchemaType, strategy: Strategy) -> None:
    """Refuses another type with IncompatibleSchema, except with ALWAYS_COMPATIBLE."""
    if old is not new and strategy is not Strategy.ALWAYS_COMPATIBLE:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {old.name}, new schema type {new.name}"
        )


def check_compatible(old: Schema, new: Schema, strategy: Strategy) -> None:
    """Refuses `new` beside `old` with IncompatibleSchema; a TRANSITIVE strategy counts as its plain form."""
    check_types(old.type, new.type, strategy)
    if strategy is not Strategy.ALWAYS_COMPATIBLE:
        _CHECKS.get(new.type, _check_other)(old, new, strategy)


def _refuse(strategy: Strategy) -> IncompatibleSchema:
    return IncompatibleSchema(f"Schema compatibility strategy is {strategy}")


def _check_other(old: Schema, new: Schema, strategy: Strategy) -> None:
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise _refuse(strategy)


def _check_external(old: Schema, new: Schema, strategy: Strategy) -> None:
    """The broker knows nothing of these: Pulsar accepts them with every strategy."""


def _check_avro(old: Schema, new: Schema, strategy: Strategy) -> None:
    _check_other(old, new, strategy)
    try:
        older, newer = parse_avro(old.data), parse_avro(new.data)
        if strategy.reads_old:
            _check_reads(older, newer, f"the new schema cannot read data of the existing one ({strategy})")
        if strategy.reads_new:
            _check_reads(newer, older, f"the existing schema cannot read data of the new one ({strategy})")
    except (InvalidAvro, TooComplex) as error:
        raise IncompatibleSchema(f"Error during schema compatibility check: {error}") from None


def _check_reads(writer: AvroType, reader: AvroType, reason: str) -> None:
    if not can_read(writer, reader):
        raise IncompatibleSchema(f"Incompatible schema: {reason}")


def _check_native(old: Schema, new: Schema, strategy: Strategy) -> None:
    _check_other(old, new, strategy)
    before, after = root_message(old.data), root_message(new.data)
    if before != after:
        raise IncompatibleSchema(
            f"Protobuf root message change is not allowed under the {strategy} strategy: {before}, new {after}"
        )


def _check_key_value(old: Schema, new: Schema, strategy: Strategy) -> None:
    for name, before, after in zip(key_value.PARTS, key_value.split(old), key_value.split(new), strict=True):
        try:
            check_compatible(before, after, strategy)
        except IncompatibleSchema as error:
            raise IncompatibleSchema(f"{name}: {error}") from None


_CHECKS: Final[Mapping[SchemaType, Callable[[Schema, Schema, Strategy], None]]] = {
    SchemaType.AVRO: _check_avro,
    SchemaType.JSON: _check_avro,
    SchemaType.PROTOBUF_NATIVE: _check_native,
    SchemaType.KEY_VALUE: _check_key_value,
    SchemaType.EXTERNAL: _check_external,
}
