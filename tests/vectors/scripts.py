"""Decision scripts: one JSON object per line, operations in order, an `expect` after each.

Common to all kinds of decision vectors; the replayer of a kind is a class whose objects hold the state of
one script and whose `apply` answers with at least the fields that are expected.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tests.vectors.result import Result

Op: TypeAlias = dict[str, Any]
"""A script, an operation or an answer. The files are trusted and compared exactly, so their shape is not typed."""


class Replay(Protocol):
    def apply(self, op: Op) -> Op: ...


def read_scripts(path: Path) -> Iterator[Op]:
    """The scripts of a `.jsonl` or `.jsonl.gz` file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def differences(expect: Op, got: Op) -> list[str]:
    return [
        f"{key}: expected {value!r}, got {got.get(key)!r}"
        for key, value in expect.items()
        if key not in got or got[key] != value
    ]


def run_scripts(path: Path, start: Callable[[Op], Replay]) -> Result:
    """Replays every script from an empty state; a script ends at its first difference."""
    result = Result()
    for script in read_scripts(path):
        wrong = run_script(script, start)
        if wrong is None:
            result.passed += 1
        else:
            result.failed += 1
            result.messages.append(f"{path.name} {script['name']} {wrong}")
    return result


def run_script(script: Op, start: Callable[[Op], Replay]) -> str | None:
    """The first difference, or none."""
    replay = start(script)
    for number, op in enumerate(script["ops"]):
        wrong = differences(op.get("expect", {}), replay.apply(op))
        if wrong:
            asked = {key: value for key, value in op.items() if key != "expect"}
            return f"op {number} {json.dumps(asked)}: " + "; ".join(wrong)
    return None
