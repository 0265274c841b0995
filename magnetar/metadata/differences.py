"""Compares two metadata stores node by node. Pure: no I/O.

Versions and times are not compared: a copy has others. JSON whose members stand in another order is equal.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from magnetar.metadata.node_words import value_or_finding
from magnetar.snapshot.node_rows import Node


def differences(first: Iterable[Node], second: Iterable[Node]) -> Iterator[list[str]]:
    """Yields the lines of each node that differs. Memory holds the values of the first store.

    `- path` is in the first store alone, `+ path` in the second, `~ path` in both with other values. Nodes without a value,
    which stand above others, are left out.
    """
    values = {node.path: node for node in first if node.value}
    for node in second:
        if not node.value:
            continue
        before = values.pop(node.path, None)
        if before is None:
            yield [f"+ {node.path}", *(f"    + {line}" for line in value_or_finding(node).lines())]
        elif before.value != node.value and (changes := _changes(before, node)):
            yield [f"~ {node.path}", *changes]
    for path, node in sorted(values.items()):
        yield [f"- {path}", *(f"    - {line}" for line in value_or_finding(node).lines())]


def _changes(before: Node, after: Node) -> list[str]:
    """Returns the lines that differ; none for values that say the same."""
    old, new = value_or_finding(before), value_or_finding(after)
    if old.form == new.form and old.parsed is not None and old.parsed == new.parsed:
        return []
    lines = list(difflib.unified_diff(old.lines(), new.lines(), lineterm="", n=0))
    # The first two name the sides, and lines that begin with @@ name places.
    found = [f"    {line}" for line in lines[2:] if not line.startswith("@@")]
    # The form alone differs, or parts that are not shown.
    return found or [
        f"    - {old.form}, {len(before.value)} bytes",
        f"    + {new.form}, {len(after.value)} bytes",
    ]
