"""AvroType: an Avro schema, read from its JSON text with the checks of Avro's own Java parser.

Pulsar keeps Avro definitions for the schema types AVRO, JSON and PROTOBUF. A text is accepted or refused here as Apache
Pulsar 4.2.4 accepts or refuses it (`tests/data/schemas/validity.jsonl` has its answers): names may be used before they are
defined, a repeated definition must be equal to the first one, defaults are not checked against their types.

Pure: no I/O. `docs/decisions/0009-our-own-avro-resolution.md` says why no library does this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from foundation.value import Json

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
"""Kinds of types that a bare word names."""
NAMED: Final = frozenset(("record", "enum", "fixed"))
"""Kinds of types that have a name."""
DEPTH_MAX: Final = 200
"""Types inside of types. Each takes a few frames of Python's stack, which has 1000 by default."""

VALUES_MAX: Final = 60_000
"""Commas and opening brackets in a text, 20,000 fields.

The JSON parser holds the interpreter for the whole text, and the event loop waits meanwhile: 10 ms for so many.
"""

_SCHEMA_WORDS: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_FIELD_WORDS: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_ORDERS: Final = frozenset(("ascending", "descending", "ignore"))
_UNRESOLVED: Final = "reference"
# Texts first, so that two slashes inside of a text are no comment.
_COMMENTS: Final = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


class InvalidAvro(ValueError):
    """The text is no Avro schema; the message says why."""


class AvroField(NamedTuple):
    """A field of a record."""

    name: str
    """Unique in its record."""
    type: AvroType
    """The type of its values."""
    has_default: bool
    """True when a reader may fill in the field."""
    default: Json
    """The value of a field that a writer lacks; it is not checked against the type."""
    order: str
    """`ascending`, `descending` or `ignore`."""
    aliases: tuple[str, ...]
    """Earlier names."""
    properties: dict[str, Json]
    """Attributes that Avro gives no meaning."""


class AvroType:
    """A type and everything inside of it; a recursive type refers to itself."""

    __slots__ = ("aliases", "branches", "fields", "kind", "name", "properties", "size", "symbols")

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        """A word of PRIMITIVES or NAMED, or `array`, `map`, `union`."""
        self.name = name
        """Full name, with the namespace in front; "" for a type without name."""
        self.fields: Sequence[AvroField] = ()
        """Of a record."""
        self.branches: Sequence[AvroType] = ()
        """Of a union; the one type of the items of an array or of the values of a map."""
        self.symbols: Sequence[str] = ()
        """Of an enum."""
        self.size = 0
        """Bytes of a fixed."""
        self.aliases: Sequence[str] = ()
        """Earlier full names."""
        self.properties: dict[str, Json] = {}
        """Attributes that Avro gives no meaning, among them logical types."""

    def define(self, other: AvroType) -> None:
        """Takes everything from `other`; a name that was used before its definition becomes the type so."""
        for slot in self.__slots__:
            setattr(self, slot, getattr(other, slot))


def simple_name(full: str) -> str:
    """Returns the name without its namespace."""
    return full.rpartition(".")[2]


def parse_avro(data: bytes) -> AvroType:
    """Returns the type that the JSON text defines. Raises InvalidAvro."""
    if data.count(b",") + data.count(b"{") + data.count(b"[") > VALUES_MAX:
        _refuse(f"the text has more than {VALUES_MAX} values")
    # Java reads malformed UTF-8 in the same way: a replacement character in a name is refused below.
    text = data.decode(errors="replace")
    try:
        return _Parser().parse(_load(text))
    except RecursionError:
        _refuse(f"types are nested too deeply: at most {DEPTH_MAX} are allowed")


def canonical_text(schema: AvroType) -> bytes:
    """Returns the same bytes for two schemas that Avro calls equal.

    Documentation, aliases, defaults of enums, white space and the order of attributes have no influence.
    """
    parts: list[str] = []
    # In pieces: one call for a large schema would keep the interpreter from the event loop for tens of milliseconds.
    _canonical(schema, set(), parts)
    return "\n".join(parts).encode()


def _refuse(reason: str) -> NoReturn:
    raise InvalidAvro(reason)


def _no_constant(word: str) -> NoReturn:
    _refuse(f"{word} is no JSON")


def _load(text: str) -> Json:
    try:
        return _loads(text)
    except ValueError as error:
        without = _COMMENTS.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
        if without == text:
            raise InvalidAvro(f"not JSON: {error}") from None
    try:
        # Avro's parser allows comments, JSON does not.
        return _loads(without)
    except ValueError as error:
        raise InvalidAvro(f"not JSON: {error}") from None


def _loads(text: str) -> Json:
    value: Json = json.loads(text, parse_constant=_no_constant)
    return value


def _canonical(schema: AvroType, seen: set[str], parts: list[str]) -> None:
    if schema.kind in NAMED:
        # The second time by name: it ends recursion, and a name has one meaning in a schema.
        if schema.name in seen:
            parts.append(_text(schema.name))
            return
        seen.add(schema.name)
    parts.append(_text([schema.kind, schema.name, schema.size, list(schema.symbols), schema.properties]))
    for branch in schema.branches:
        _canonical(branch, seen, parts)
    for field in schema.fields:
        default: list[Json] = [field.default] if field.has_default else []
        parts.append(_text([field.name, default, field.order, field.properties]))
        _canonical(field.type, seen, parts)
    parts.append(";")


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class _Parser:
    """Reads one schema: first every definition, then the names that were used before theirs."""

    def __init__(self) -> None:
        self._types: dict[str, AvroType] = {}
        self._used_early: list[tuple[AvroType, str]] = []
        self._repeated: list[tuple[AvroType, AvroType]] = []
        self._unions: list[AvroType] = []

    def parse(self, value: Json) -> AvroType:
        """Returns the type with all references resolved."""
        root = self._type(value, "", 0)
        for reference, simple in self._used_early:
            found = self._types.get(reference.name) or self._types.get(simple)
            if found is None:
                _refuse(f"{reference.name} is not defined")
            reference.define(found)
        for first, second in self._repeated:
            if canonical_text(first) != canonical_text(second):
                _refuse(f"{first.name} is defined twice, and differently")
        for union in self._unions:
            _check_branches(union)
        return root

    def _type(self, value: Json, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise RecursionError
        if isinstance(value, str):
            return AvroType(value) if value in PRIMITIVES else self._reference(value, namespace)
        if isinstance(value, list):
            union = AvroType("union")
            union.branches = [self._type(branch, namespace, depth + 1) for branch in value]
            self._unions.append(union)
            return union
        if isinstance(value, dict):
            return self._object(value, namespace, depth)
        _refuse(f"{json.dumps(value)[:50]} is no type")

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._types.get(full) or self._types.get(name)
        if found is None:
            found = AvroType(_UNRESOLVED, full.removeprefix("."))
            self._used_early.append((found, name.removeprefix(".")))
        return found

    def _object(self, value: dict[str, Json], namespace: str, depth: int) -> AvroType:
        kind = value.get("type")
        if not isinstance(kind, str):
            _refuse(f"the type {json.dumps(kind)[:50]} must be a text")
        if kind == "error":
            # Avro's word for a record that a remote call returns as its error.
            kind = "record"
        if kind in NAMED:
            return self._named(kind, value, namespace, depth)
        if kind in ("array", "map"):
            schema = AvroType(kind)
            word = "items" if kind == "array" else "values"
            schema.branches = (self._type(_wanted(value, word, kind), namespace, depth + 1),)
        elif kind in PRIMITIVES:
            schema = AvroType(kind)
        else:
            return self._reference(kind, namespace)
        schema.properties = _others(value, _SCHEMA_WORDS)
        return schema

    def _named(self, kind: str, value: dict[str, Json], namespace: str, depth: int) -> AvroType:
        schema = AvroType(kind, _full_name(value, namespace))
        namespace = schema.name.rpartition(".")[0]
        first = self._types.setdefault(schema.name, schema)
        if first is not schema:
            self._repeated.append((first, schema))
        schema.aliases = tuple(
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in _texts(value.get("aliases"), "aliases")
        )
        for alias in schema.aliases:
            _check_name(alias)
        words = _SCHEMA_WORDS
        if kind == "record":
            schema.fields = self._fields(_wanted(value, "fields", schema.name), namespace, depth)
        elif kind == "enum":
            schema.symbols = _symbols(value)
            words = words | {"default"}
        else:
            size = _wanted(value, "size", schema.name)
            if type(size) is not int or size < 0:
                _refuse(f"the size {json.dumps(size)[:50]} of {schema.name} must be 0 or more")
            schema.size = size
        schema.properties = _others(value, words)
        return schema

    def _fields(self, values: Json, namespace: str, depth: int) -> list[AvroField]:
        if not isinstance(values, list):
            _refuse("fields must be a list")
        fields: dict[str, AvroField] = {}
        for value in values:
            if not isinstance(value, dict):
                _refuse(f"{json.dumps(value)[:50]} is no field")
            name = _wanted(value, "name", "a field")
            if not isinstance(name, str) or not _is_name(name):
                _refuse(f"{json.dumps(name)[:50]} is no name for a field")
            if name in fields:
                _refuse(f"the field {name} stands there twice")
            order = value.get("order", "ascending")
            if not isinstance(order, str) or order.lower() not in _ORDERS:
                _refuse(
                    f"the order {json.dumps(order)[:50]} of {name} must be ascending, descending or ignore"
                )
            fields[name] = AvroField(
                name,
                self._type(_wanted(value, "type", name), namespace, depth + 1),
                "default" in value,
                value.get("default"),
                order.lower(),
                _texts(value.get("aliases"), "aliases"),
                _others(value, _FIELD_WORDS),
            )
        return list(fields.values())


def _check_branches(union: AvroType) -> None:
    seen: set[str] = set()
    for branch in union.branches:
        if branch.kind == "union":
            _refuse("a union must not hold another one")
        # Two unnamed types of one kind cannot be told apart by a reader.
        word = branch.name or branch.kind
        if word in seen:
            _refuse(f"a union holds {word} twice")
        seen.add(word)


def _wanted(value: Mapping[str, Json], word: str, where: str) -> Json:
    found = value.get(word)
    if found is None:
        _refuse(f"{where} lacks {word}")
    return found


def _others(value: Mapping[str, Json], words: frozenset[str]) -> dict[str, Json]:
    return {key: found for key, found in value.items() if key not in words}


def _texts(value: Json, word: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        _refuse(f"{word} must be a list of texts")
    texts = tuple(text for text in value if isinstance(text, str))
    if len(texts) < len(value):
        _refuse(f"{word} must be a list of texts")
    return texts


def _symbols(value: Mapping[str, Json]) -> tuple[str, ...]:
    symbols = _texts(_wanted(value, "symbols", "an enum"), "symbols")
    for symbol in symbols:
        if not _is_name(symbol):
            _refuse(f"{symbol[:50]!r} is no symbol of an enum")
    if len(set(symbols)) < len(symbols):
        _refuse("an enum has a symbol twice")
    default = value.get("default")
    if default is not None and default not in symbols:
        _refuse(f"the default {json.dumps(default)[:50]} is no symbol of its enum")
    return symbols


def _full_name(value: Mapping[str, Json], namespace: str) -> str:
    name = _wanted(value, "name", "a named type")
    if not isinstance(name, str):
        _refuse(f"the name {json.dumps(name)[:50]} must be a text")
    if "." in name:
        full = name.removeprefix(".")
    else:
        own = value.get("namespace", namespace)
        full = f"{own}.{name}" if isinstance(own, str) and own else name
    _check_name(full)
    if full in PRIMITIVES:
        _refuse(f"{full} is the name of a primitive type")
    return full


def _check_name(full: str) -> None:
    if not all(_is_name(part) for part in full.split(".")):
        _refuse(f"{full[:100]!r} is no name: letters, digits and _ are allowed, a digit not at the beginning")


def _is_name(name: str) -> bool:
    # Letters of any script, as Java's parser takes them.
    return name.replace("_", "a").isalnum() and not name[0].isdigit()
