"""Replays `cursors` scripts. Where a release's own rank is wrong the counted one is expected."""

from __future__ import annotations

from pathlib import Path

from entry_cache.active_cursors import ActiveCursors, count_to
from foundation.model.position import Position
from tests.vectors.result import Result
from tests.vectors.scripts import Op, run_scripts

MS = 1_000_000


class CursorsReplay:
    def __init__(self, script: Op) -> None:
        config = script["config"]
        self.cursors = ActiveCursors(config["continue_caching_ms"] * MS, config["created_at_ms"] * MS)
        self.names: set[str] = set()

    def apply(self, op: Op) -> Op:
        got: Op = getattr(self, "do_" + op["op"])(op) or {}
        for field in ("rank", "ranks"):
            if field in op["expect"]:  # The release's own answer, which 4.2 sometimes has wrong.
                op["expect"][field] = op["expect"]["true_" + field]
                got["true_" + field] = got[field]
        return got | {"size": len(self.cursors), "empty": not len(self.cursors)}

    def do_add(self, op: Op) -> None:
        self.names.add(op["name"])
        self.cursors.add(op["name"], position_of(op))

    def do_update(self, op: Op) -> None:
        self.cursors.update(op["name"], position_of(op))

    def do_remove(self, op: Op) -> Op:
        return {"removed": self.cursors.remove(op["name"], op["now_ms"] * MS)}

    def do_rank(self, op: Op) -> Op:
        return {"rank": self.cursors.rank(op["name"])}

    def do_all_ranks(self, op: Op) -> Op:
        names = sorted(name for name in self.names if name in self.cursors)
        return {"ranks": [[name, self.cursors.rank(name)] for name in names]}

    def do_rank_at(self, op: Op) -> Op:
        position = position_of(op)
        assert position is not None
        return {"rank": count_to(self.cursors.places, position)}

    def do_slowest(self, op: Op) -> Op:
        slowest = self.cursors.slowest()
        return {"position": None if slowest is None else list(slowest)}

    def do_should_cache_added(self, op: Op) -> Op:
        return {"should_cache": self.cursors.should_cache_added(op["now_ms"] * MS)}


def position_of(op: Op) -> Position | None:
    return None if op["position"] is None else Position(*op["position"])


def run_file(path: Path) -> Result:
    return run_scripts(path, CursorsReplay)
