"""Helpers for tests of the bookie's files: run a tool on the bench's directory, damage a file."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from bookie_stub.disk.ledger_index import LedgerIndex
from magnetar.commands.bookie_command import main
from tests.bookie_stub.conftest import Bench


def run(bench: Bench, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of output, lines of errors."""
    code = main([*words, *directories_of(bench.directory)])
    out, errors = capsys.readouterr()
    return code, out.splitlines(), errors.splitlines()


def directories_of(directory: Path) -> list[str]:
    """The options that name a bench's directories."""
    places = (("journal", "journal"), ("ledger", "ledgers"), ("index", "ledgers"))
    return [word for kind, place in places for word in ("--set", f"{kind}Directories={directory / place}")]


def flip(path: Path, offset: int) -> None:
    """One bit."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 0x10,)))


def zero(path: Path, offset: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(size))


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def forget_journals(directory: Path) -> None:
    """As if they were older than those that are kept."""
    for path in directory.glob("*/current/lastMark"):
        path.unlink()
    for path in (*directory.glob("journal/current/*.txn"), directory / "journal/current/durable"):
        path.unlink()


def limbo_of(current: Path) -> dict[int, bool]:
    """Of each ledger in the ledger index of a directory."""
    index = LedgerIndex(current / "ledgers")
    try:
        return {ledger_id: row.limbo for ledger_id, row in index.load()[0].items()}
    finally:
        index.close()


def crash(bench: Bench, tmp_path: Path, *, free: int | None = None, **settings: object) -> Bench:
    """Opens a copy of the bench's files as they are now, like the ones that a kill -9 leaves.

    `free` bytes are on its disks, None: those of the real disk.
    """
    image = tmp_path.with_name(tmp_path.name + f"-crash{random.random()}")
    shutil.copytree(bench.directory, image)
    other = Bench(image)
    other.file_system.free = free
    other.open(**settings)
    return other
