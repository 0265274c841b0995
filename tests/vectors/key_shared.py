"""Replays `key_hash`, `crc32c` and `key_shared` scripts: hashes, checksums, and who owns which hash."""

from __future__ import annotations

from pathlib import Path

import crc32c

from broker.service.subscriptions.dispatch.key_shared import (
    AutoSplitSelector,
    ConsistentHashingSelector,
    sticky_hash_of,
    sticky_key_hash,
)
from foundation.model.errors import ConsumerAssignError
from tests.vectors.result import Result
from tests.vectors.scripts import Op, Replay, run_scripts


class KeyHashReplay:
    def __init__(self, script: Op) -> None:
        self.config = script["config"]

    def apply(self, op: Op) -> Op:
        key = bytes.fromhex(op["key_hex"])
        return {
            "murmur3": sticky_key_hash(key),
            "sticky_consistent": self.sticky(key, "consistent_range"),
            "sticky_auto_split": self.sticky(key, "auto_split_range"),
        }

    def sticky(self, key: bytes, kind: str) -> int:
        first, last = self.config[kind]
        return sticky_hash_of(key, last - first + 1, first)


class ChecksumReplay:
    def apply(self, op: Op) -> Op:
        data, cut = bytes.fromhex(op["data_hex"]), op["cut"]
        first_part = crc32c.crc32c(memoryview(data)[:cut])
        return {
            "crc": crc32c.crc32c(data),
            "first_part": first_part,
            "resumed": crc32c.crc32c(memoryview(data)[cut:], first_part),
        }


class SelectorReplay:
    def __init__(self, script: Op) -> None:
        config = script["config"]
        self.selector = (
            AutoSplitSelector(config["range_size"])
            if config["selector"] == "auto_split"
            else ConsistentHashingSelector(config["points"])
        )
        self.consumers: dict[int, object] = {}

    def apply(self, op: Op) -> Op:
        error: str | None = None
        number = op["consumer"]
        if op["op"] == "add":
            try:
                self.selector.add(self.consumers.setdefault(number, number), op["name"])
            except ConsumerAssignError:
                error = "add_failed"
        else:
            self.selector.remove(number)
        got: Op = {
            "select": [[probe, self.selector.select(probe)] for probe, _ in op["expect"].get("select", [])],
            "ranges": [list(assignment) for assignment in self.selector.ranges()],
        }
        return got if error is None and "error" not in op["expect"] else got | {"error": error}


def start(script: Op) -> Replay:
    match script["kind"]:
        case "key_hash":
            return KeyHashReplay(script)
        case "crc32c":
            return ChecksumReplay()
        case _:
            return SelectorReplay(script)


def run_file(path: Path) -> Result:
    return run_scripts(path, start)
