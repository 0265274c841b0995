"""Protobuf messages as the plain trees that the recorded transcripts use, and back.

Law of the place: only fields that are present appear; bytes are hex text, enums go by name, 64-bit unsigned
numbers stay as they are. A tree goes in and out without a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Tree: TypeAlias = dict[str, Json]


def to_tree(message: Message) -> Tree:
    tree: Tree = {}
    for field, value in message.ListFields():
        names = _enum_names(field.enum_type)
        if field.is_repeated:
            tree[field.name] = [_value_out(item, names) for item in value]
        else:
            tree[field.name] = _value_out(value, names)
    return tree


def fill(message: Message, tree: Mapping[str, Json]) -> None:
    """Sets the fields of `message` from `tree`. KeyError for a field that the message does not have."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in tree.items():
        field = fields[name]
        numbers = {word: number for number, word in _enum_names(field.enum_type).items()}
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        target = getattr(message, name)
        if field.is_repeated:
            for item in _as_list(value):
                if isinstance(item, dict):
                    fill(target.add(), item)
                else:
                    target.append(_scalar_in(item, numbers, is_bytes=is_bytes))
        elif isinstance(value, dict):
            target.SetInParent()
            fill(target, value)
        else:
            setattr(message, name, _scalar_in(value, numbers, is_bytes=is_bytes))


def as_tree(value: Json) -> Tree:
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {value!r}")
    return value


def _as_list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"a list is expected, not {value!r}")
    return value


def _enum_names(enum_type: object) -> dict[int, str]:
    """`enum_type` is the descriptor of either protobuf runtime, or None for a field of another kind."""
    values = getattr(enum_type, "values_by_number", {})
    return {number: value.name for number, value in values.items()}


def _value_out(value: object, enum_names: Mapping[int, str]) -> Json:
    if isinstance(value, Message):
        return to_tree(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and value in enum_names:
        return enum_names[value]
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is not a field's value")


def _scalar_in(
    value: Json, enum_numbers: Mapping[str, int], *, is_bytes: bool
) -> bool | int | float | str | bytes:
    if isinstance(value, str) and value in enum_numbers:
        return enum_numbers[value]
    if isinstance(value, str) and is_bytes:
        return bytes.fromhex(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a field cannot hold {value!r}")
