"""`python -m tests.vectors PATH...`: replay golden files, name each difference, count.

A folder is searched for `.jsonl` and `.jsonl.gz` files. The folder that a file stands in says which replayer
takes it, and a file that stands elsewhere is asked for its kind. Exit code 1 if anything failed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.vectors.result import Result
from tests.vectors.scripts import read_scripts

KINDS = (
    "adaptive",
    "authz",
    "bookie",
    "cachesim",
    "cluster",
    "cursors",
    "eviction",
    "key_shared",
    "limiter",
    "pending_reads",
    "rest",
    "wire",
)
"""Folders, and the modules beside this one that replay their files."""

KIND_OF_SCRIPT = {"key_hash": "key_shared", "crc32c": "key_shared"}
SUFFIXES = (".jsonl", ".jsonl.gz", ".csv")


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: python -m tests.vectors PATH...", file=sys.stderr)
        return 2
    total = Result()
    for path in map(Path, paths):
        if not path.exists():
            total.add(Result(failed=1, messages=[f"{path}: no such file or folder"]))
        for file in golden_files(path):
            result = replay(file)
            for message in result.messages:
                print(message)
            total.add(result)
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


def golden_files(path: Path) -> Iterator[Path]:
    """Each golden file once. A stored bookie state is one thing in many files: its manifest stands for it."""
    if path.is_file():
        if path.suffix != ".md":  # A shell's pattern for all folders brings their README along.
            yield path
        return
    for file in sorted(path.rglob("*")):
        state = (file.parent / "manifest.json").exists()
        if file.name == "manifest.json" or (not state and file.name.endswith(SUFFIXES)):
            yield file


def replay(file: Path) -> Result:
    kind = kind_of(file)
    if kind not in KINDS or importlib.util.find_spec(f"tests.vectors.{kind}") is None:
        return Result(messages=[f"{file.name}: skipped, no replayer for {kind}"])
    result: Result = importlib.import_module(f"tests.vectors.{kind}").run_file(file)
    return result


def kind_of(file: Path) -> str:
    folders = [folder.name for folder in file.resolve().parents]
    for folder in folders:
        if folder in KINDS:
            return folder
    if file.suffix == ".csv":
        return file.name
    kind = str(next(read_scripts(file), {}).get("kind", file.parent.name))
    return KIND_OF_SCRIPT.get(kind, kind)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
