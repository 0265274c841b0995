"""can_read: whether a reader with one Avro schema can read what was written with another.

The rules are Avro's schema resolution as Apache's brokers apply it; `tests/data/schemas/compatibility.jsonl` has their
answers. Three rules surprise: names of records have no influence, an enum may lose symbols, and the names of enums and
fixed types are compared without their namespaces. Avro's Python package would refuse the first two.

Pure: no I/O. The work is limited by `STEPS_MAX`, because unions of records can need a number of steps that grows with
the product of their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.schemas.avro_schema import NAMED, AvroType, simple_name

STEPS_MAX: Final = 2_000_000
"""Comparisons of two types in one check, a few seconds. A schema of 900 kB without large unions needs 100,000."""

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
"""The kinds that a written kind may be read as."""


class TooComplex(ValueError):
    """The comparison needs more than STEPS_MAX steps."""


def can_read(writer: AvroType, reader: AvroType) -> bool:
    """Returns True when `reader` reads every value of `writer`. Raises TooComplex."""
    return _Resolution(reader).reads(writer, reader)


class _Resolution:
    """One comparison; remembers pairs of records, which ends recursion and spares repeated work."""

    def __init__(self, reader: AvroType) -> None:
        self._steps = 0
        # Names of the reader by their aliases, and names of its fields by record and alias.
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._pairs: dict[tuple[str, str], bool] = {}
        self._comparing: set[tuple[str, str]] = set()
        self._collect_aliases(reader, set())

    def _collect_aliases(self, schema: AvroType, seen: set[str]) -> None:
        if schema.kind in NAMED:
            if schema.name in seen:
                return
            seen.add(schema.name)
            self._names.update(dict.fromkeys(schema.aliases, schema.name))
        for field in schema.fields:
            for alias in field.aliases:
                self._fields.setdefault(schema.name, {})[alias] = field.name
            self._collect_aliases(field.type, seen)
        for branch in schema.branches:
            self._collect_aliases(branch, seen)

    def _name(self, writer: AvroType) -> str:
        return self._names.get(writer.name, writer.name)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise TooComplex(f"the schemas need more than {STEPS_MAX} comparisons; use smaller unions")

    def reads(self, writer: AvroType, reader: AvroType) -> bool:
        """Returns True when all values can be read, those of nested types included."""
        self._step()
        if writer.kind == "union":
            return all(self.reads(branch, reader) for branch in writer.branches)
        if writer.kind == reader.kind:
            if writer.kind == "record":
                return self._reads_record(writer, reader)
            if writer.kind in ("array", "map"):
                return self.reads(writer.branches[0], reader.branches[0])
            return writer.kind not in NAMED or self._is_same(writer, reader)
        if reader.kind == "union":
            branch = self._branch(writer, reader)
            return branch is not None and self.reads(writer, branch)
        return reader.kind in _PROMOTIONS.get(writer.kind, ())

    def _is_same(self, writer: AvroType, reader: AvroType) -> bool:
        """Compares two enums or fixed types; the symbols of enums have no influence."""
        return simple_name(self._name(writer)) == simple_name(reader.name) and writer.size == reader.size

    def _written(self, writer: AvroType) -> dict[str, AvroType] | None:
        """Returns the writer's fields by the reader's names; None when two of them get one name."""
        renamed = self._fields.get(self._name(writer), {})
        written = {renamed.get(field.name, field.name): field.type for field in writer.fields}
        return written if len(written) == len(writer.fields) else None

    def _reads_record(self, writer: AvroType, reader: AvroType) -> bool:
        pair = (writer.name, reader.name)
        known = self._pairs.get(pair)
        if known is not None:
            return known
        # Assumed while the pair is compared: a recursive type is readable unless something else in it is not.
        self._pairs[pair] = True
        self._pairs[pair] = found = self._reads_fields(writer, reader)
        return found

    def _reads_fields(self, writer: AvroType, reader: AvroType) -> bool:
        written = self._written(writer)
        if written is None:
            return False
        for field in reader.fields:
            found = written.get(field.name)
            if found is None:
                if not field.has_default:
                    return False
            elif not self.reads(found, field.type):
                return False
        return True

    def _branch(self, writer: AvroType, reader: AvroType) -> AvroType | None:
        """Returns the branch of the reader's union that reads `writer`: the same type, else a promotion."""
        same = [branch for branch in reader.branches if branch.kind == writer.kind]
        self._steps += len(reader.branches)
        if writer.kind == "record":
            return self._record_branch(writer, same)
        if writer.kind in NAMED:
            name = simple_name(self._name(writer))
            return next((branch for branch in same if simple_name(branch.name) == name), None)
        if same:
            return same[0]
        promotions = _PROMOTIONS.get(writer.kind, ())
        return next((branch for branch in reader.branches if branch.kind in promotions), None)

    def _record_branch(self, writer: AvroType, records: list[AvroType]) -> AvroType | None:
        """Returns the record of the same full name, else one whose fields fit: of the same name, or the first."""
        name = self._name(writer)
        for record in records:
            if record.name == name:
                return record
        fitting: AvroType | None = None
        for record in records:
            self._step()
            if not self._differs(writer, record) and (
                fitting is None or simple_name(record.name) == simple_name(name)
            ):
                fitting = record
        return fitting

    def _differs(self, writer: AvroType, reader: AvroType) -> bool:
        """Compares the fields of two records without looking into nested records, as Avro does in a union."""
        pair = (writer.name, reader.name)
        if pair in self._comparing:
            return False
        self._comparing.add(pair)
        try:
            written = self._written(writer)
            return written is None or any(
                not field.has_default if found is None else self._refuses(found, field.type)
                for field in reader.fields
                for found in (written.get(field.name),)
            )
        finally:
            self._comparing.discard(pair)

    def _refuses(self, writer: AvroType, reader: AvroType) -> bool:
        """Returns True when the two types themselves do not fit; nested types are judged by `reads` alone."""
        self._step()
        if writer.kind == "union":
            return False
        if writer.kind == reader.kind:
            if writer.kind == "record":
                written = self._written(writer) or {}
                return any(not field.has_default and field.name not in written for field in reader.fields)
            return writer.kind in NAMED and not self._is_same(writer, reader)
        if reader.kind == "union":
            return self._branch(writer, reader) is None
        return reader.kind not in _PROMOTIONS.get(writer.kind, ())
