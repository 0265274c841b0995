"""Records of the client processes of a crash round: one short line per event, a file for each process.

Law of the place: a line is written with one system call before the client acts on it, so that it is there
even when the process is killed in the next instant. Times are monotonic nanoseconds, alike in all processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Message(NamedTuple):
    """A message's content: who sent it and as which of its messages."""

    producer: str
    number: int

    def body(self, size: int) -> bytes:
        return f"{self.producer}:{self.number}:".encode().ljust(size, b".")

    @classmethod
    def of(cls, body: bytes) -> Message:
        producer, number, _ = body.decode().split(":", 2)
        return cls(producer, int(number))


class Position(NamedTuple):
    ledger: int
    entry: int


class Delivery(NamedTuple):
    """A message at its place; one that was sent twice stands at two places."""

    position: Position
    message: Message


class Confirmed(NamedTuple):
    """The client saw the receipt of its message `number` at `at_ns`."""

    producer: str
    number: int
    at_ns: int


class Acked(NamedTuple):
    """The client was about to acknowledge this (cumulative: and all before it) at `at_ns`."""

    delivery: Delivery
    at_ns: int


class Came(NamedTuple):
    """A delayed message came at `at_ms` and was due at `due_ms`, both by the wall clock."""

    number: int
    due_ms: int
    at_ms: int


class Moves(NamedTuple):
    """The transactions of a round, each by its id as text, as their clients know them."""

    stored: set[int]
    """Numbers of messages that the source has confirmed."""
    plain: set[int]
    """Numbers of messages outside of transactions that the target has confirmed."""
    moved: dict[str, set[int]]
    """By transaction: numbers that it has published and acknowledged, both answered."""
    asked: dict[str, str]
    """By transaction: COMMIT or ABORT, as asked for."""
    answered: set[str]
    """Transactions whose end was answered."""


class Recorder:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def confirmed(self, message: Message, at_ns: int) -> None:
        self._line("confirmed", message.producer, message.number, at_ns)

    def acking(self, delivery: Delivery, at_ns: int) -> None:
        position, message = delivery
        self._line("acking", position.ledger, position.entry, message.producer, message.number, at_ns)

    def came(self, number: int, due_ms: int, at_ms: int) -> None:
        self._line("came", number, due_ms, at_ms)

    def moving(self, kind: str, *words: object) -> None:
        """A step of a transaction; `read_moves` knows the kinds."""
        self._line(kind, *words)

    def entry_acking(self, position: Position) -> None:
        """About to acknowledge a whole entry and to ask for a receipt."""
        self._line("entry-acking", *position)

    def entry_acked(self, position: Position) -> None:
        """The broker has answered that ack."""
        self._line("entry-acked", *position)

    def _line(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def read_confirmed(path: Path) -> list[Confirmed]:
    return [Confirmed(name, int(number), int(at)) for name, number, at in _lines(path, "confirmed")]


def read_acking(path: Path) -> list[Acked]:
    return [
        Acked(Delivery(Position(int(ledger), int(entry)), Message(name, int(number))), int(at))
        for ledger, entry, name, number, at in _lines(path, "acking")
    ]


def read_came(path: Path) -> list[Came]:
    return [Came(int(number), int(due_ms), int(at_ms)) for number, due_ms, at_ms in _lines(path, "came")]


def read_entries(path: Path, kind: str) -> set[Position]:
    """`kind`: entry-acking or entry-acked."""
    return {Position(int(ledger), int(entry)) for ledger, entry in _lines(path, kind)}


def read_moves(path: Path) -> Moves:
    moved: dict[str, set[int]] = {}
    for txn, number in _lines(path, "moved"):
        moved.setdefault(txn, set()).add(int(number))
    return Moves(
        {int(number) for (number,) in _lines(path, "stored")},
        {int(number) for (number,) in _lines(path, "plain")},
        moved,
        {words[0]: words[1] for words in _lines(path, "ending")},
        {txn for (txn,) in _lines(path, "ended")},
    )


def _lines(path: Path, kind: str) -> list[list[str]]:
    lines = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
    return [words[1:] for words in lines if words and words[0] == kind]
