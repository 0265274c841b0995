"""Comparison of recorded trees with received ones: path by path, with symbols and values that may vary.

Law of the place: a field that is present with its default value and an absent one are different; a text that
a broker words by itself is compared only for being there; paths are written as recorded (`a.b[0].c`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tests.support.command_json import Json, Tree

_FREE_TEXTS: Final = frozenset({"message", "error_message", "reason"})
"""Error texts are the broker's own words: no client depends on one in the recorded scripts."""

Symbols = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    want: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: want {self.want}, got {self.got}"


def leaves(tree: Json, path: str = "") -> dict[str, Json]:
    """Every leaf by its path. An empty object or list is a leaf."""
    found: dict[str, Json] = {}
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            found |= leaves(value, f"{path}.{name}" if path else name)
    elif isinstance(tree, list) and tree:
        for index, value in enumerate(tree):
            found |= leaves(value, f"{path}[{index}]")
    else:
        found[path] = tree
    return found


def differences(
    want: Tree,
    got: Tree,
    *,
    vary: Collection[str] = (),
    bind: Mapping[str, str] | None = None,
    symbols: Symbols,
) -> list[Difference]:
    """Everything in which `got` is not as recorded. A path of `bind` defines its symbol where that is new."""
    symbol_of = bind or {}
    wanted, received = leaves(want), leaves(got)
    found = []
    for path in [*wanted, *(path for path in received if path not in wanted)]:
        if path not in received or path not in wanted:
            if _below(path, vary) and any(_below(other, _covering(path, vary)) for other in received):
                continue
            found.append(Difference(path, _shown(wanted, path), _shown(received, path)))
        elif path in symbol_of:
            expected = symbols.setdefault(symbol_of[path], received[path])
            if received[path] != expected:
                found.append(Difference(path, f"{symbol_of[path]} = {expected!r}", repr(received[path])))
        elif not _free(path, wanted[path], vary) and received[path] != wanted[path]:
            found.append(Difference(path, repr(wanted[path]), repr(received[path])))
    return found


def substitute(tree: Tree, bind: Mapping[str, str], symbols: Symbols) -> Tree:
    """A copy of `tree` with the symbols' values put in. KeyError for a symbol that no answer has defined."""

    def copied(value: Json, path: str) -> Json:
        if path in bind:
            return symbols[bind[path]]
        if isinstance(value, dict):
            return {name: copied(item, f"{path}.{name}" if path else name) for name, item in value.items()}
        if isinstance(value, list):
            return [copied(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return {name: copied(value, name) for name, value in tree.items()}


def _free(path: str, wanted: Json, vary: Collection[str]) -> bool:
    return (path in _FREE_TEXTS and isinstance(wanted, str)) or _below(path, vary)


def _covering(path: str, vary: Collection[str]) -> list[str]:
    return [one for one in vary if _below(path, [one])]


def _below(path: str, tops: Collection[str]) -> bool:
    return any(path == top or path.startswith((f"{top}.", f"{top}[")) for top in tops)


def _shown(values: Mapping[str, Json], path: str) -> str:
    return repr(values[path]) if path in values else "nothing"
