"""Shows a node in words: path, meaning, version, form, and the value as lines. Pure: no I/O."""

from __future__ import annotations

from functools import partial
from typing import Final

from magnetar.metadata.node_values import ReadValue, hex_lines, read_value
from magnetar.snapshot.node_path import NodePath, describe
from magnetar.snapshot.node_rows import Node

_MEANINGS: Final = {
    "managed-ledger": "ledgers of {topic}",
    "cursor": "cursor {name!r} of {topic}",
    "ledger": "ledger {ledger_id}",
    "partitioned-topic": "partitions of {topic}",
    "partition-shares": "shares of the partitions of {topic}, subscription {name!r}",
    "tenant": "tenant {name}",
    "namespace": "policies of the namespace {namespace}",
    "local-policies": "local policies of the namespace {namespace}",
    "topic-policies": "policies of {topic}",
    "schema": "schema of {topic}, as places in BookKeeper",
    "schema-index": "versions of the schema of {topic}",
    "schema-version": "a version of the schema of {topic}",
    "bundle-owner": "owner of a bundle of {namespace}",
    "bundle-data": "load of a bundle of {namespace}",
    "health": "ledger of a health probe",
    "bookkeeper": "of BookKeeper",
    "parent": "above others",
}


def meaning_of(where: NodePath) -> str:
    """Returns the meaning of a path in words; empty for one that is not known here."""
    if where.kind == "deletion":
        return f"decided deletion of {where.topic or where.namespace or where.name}"
    return _MEANINGS.get(where.kind, "").format(**where._asdict())


def value_or_finding(node: Node) -> ReadValue:
    """Returns the value of a node; one that cannot be read becomes hexadecimal, with the reason as its form."""
    try:
        return read_value(node.path, node.value)
    except ValueError as error:
        return ReadValue(str(error), None, partial(hex_lines, node.value))


def words_of(node: Node) -> list[str]:
    """Returns the lines that show a node."""
    found = value_or_finding(node)
    meaning = meaning_of(describe(node.path))
    facts = [f"version {node.version}", f"{len(node.value):,} bytes", found.form]
    head = (
        f"{node.path}: {', '.join(facts)}" if not meaning else f"{node.path}: {meaning}; {', '.join(facts)}"
    )
    sentence = [f"  # {found.sentence}"] if found.sentence else []
    return [head, *sentence, *(f"  {line}" for line in found.lines())]
