"""Moves: which bundles a broker took and gave up, and why, for people who ask.

Each broker keeps its last moves in a node of its own, which stays after the end of its session: the record of a broker that
was killed tells which bundles it had. The leader removes the record of a broker that has been away for a day.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.topics.topic_ownership import Move, MoveKind
from foundation.model.errors import BadVersion, BrokerError

log = logging.getLogger("magnetar")

MOVES: Final = "/loadbalance/magnetar-moves"
"""Above the record of each broker."""
KEPT: Final = 50
"""Moves of one broker that are kept."""
FORGOTTEN_MS: Final = 86_400_000
"""Age of the newest move of a broker that is away from which its record is removed."""
FORGET_EVERY_MS: Final = 3_600_000
"""Time between two looks for such records."""
LOOKUP: Final = "a lookup came, and no broker had it"
"""Why a bundle was taken, as far as the one that takes it knows; `explained` knows more."""
UNLOADED: Final = "it was unloaded"
"""Why a bundle was given up at a request; where the leader has sent that, `explained` knows why."""


class Moves:
    """The record of one broker."""

    def __init__(self, store: MetadataStore, wall_ms: Callable[[], int]) -> None:
        self.counts: Counter[MoveKind] = Counter()
        """Moves since the start, by kind."""
        self._store = store
        self._wall_ms = wall_ms
        self._name = ""
        self._moves: deque[Move] = deque(maxlen=KEPT)
        self._is_written = True
        self._forget_due_ms = 0

    async def open(self, name: str) -> None:
        """Goes on with the record of an earlier life of the broker `name`. Raises MetadataError."""
        self._name = name
        self._moves.extend(await self._read(name))

    def note(self, kind: MoveKind, bundle: str, why: str) -> None:
        """Adds a move, which `write` stores."""
        self.counts[kind] += 1
        self._moves.append(Move(self._wall_ms(), bundle, self._name, kind, why))
        self._is_written = False

    async def store(self, members: Container[str] | None = None) -> None:
        """Stores the record, and with `members` forgets brokers that have been away for a day.

        Errors are logged: nothing but people needs these records.
        """
        try:
            await self.write()
            if members is not None:
                await self.forget(members)
        except BrokerError as error:
            log.warning("! the record of moved bundles cannot be stored: %s", error)

    async def write(self) -> None:
        """Stores the record if it has changed. Raises MetadataError."""
        if self._is_written:
            return
        value = json.dumps([move[:2] + move[3:] for move in self._moves], separators=(",", ":")).encode()
        self._is_written = True
        try:
            await self._store.put(f"{MOVES}/{self._name}", value)
        except BaseException:
            self._is_written = False
            raise

    async def all(self) -> list[Move]:
        """Returns the moves of all brokers as they are stored, this one's as they are. Raises MetadataError."""
        found = list(self._moves)
        for name in await self._store.children(MOVES):
            if name != self._name:
                found += await self._read(name)
        return found

    async def forget(self, present: Container[str]) -> None:
        """Removes the records of brokers that have been away for a day, once an hour. Raises MetadataError."""
        now_ms = self._wall_ms()
        if now_ms < self._forget_due_ms:
            return
        self._forget_due_ms = now_ms + FORGET_EVERY_MS
        for name in await self._store.children(MOVES):
            if name in present:
                continue
            node = await self._store.get(f"{MOVES}/{name}")
            if node is None:
                continue
            newest_ms = max((move.at_ms for move in _decoded(name, node.value)), default=0)
            if newest_ms < now_ms - FORGOTTEN_MS:
                # By version: the broker may come back meanwhile.
                with suppress(BadVersion):
                    await self._store.delete(f"{MOVES}/{name}", node.version)

    async def _read(self, name: str) -> list[Move]:
        node = await self._store.get(f"{MOVES}/{name}")
        return [] if node is None else _decoded(name, node.value)


def explained(moves: Iterable[Move]) -> list[Move]:
    """Returns the moves, newest first.

    A bundle that was taken at a lookup has the reason why no broker had it; one that was unloaded for balance has that of
    the leader.
    """
    decided: dict[str, str] = {}
    """By bundle: the reason of the leader, until it has been carried out."""
    holders: dict[str, Move] = {}
    """The last move of each bundle that tells whether a broker had it."""
    found: list[Move] = []
    for move in sorted(moves, key=attrgetter("at_ms")):
        if move.kind is MoveKind.DECIDED:
            decided[move.bundle] = move.why
        elif move.kind is MoveKind.GIVEN_UP:
            why = decided.pop(move.bundle, UNLOADED)
            move = move._replace(why=why) if move.why == UNLOADED else move
        before = holders.get(move.bundle)
        if move.why == LOOKUP and before is not None:
            found.append(move._replace(why=_reason(move, before)))
        else:
            found.append(move)
        # The loser of a bundle learns of it after the new owner has taken it.
        if move.kind in (MoveKind.TAKEN, MoveKind.GIVEN_UP):
            holders[move.bundle] = move
    found.reverse()
    return found


def _reason(move: Move, before: Move) -> str:
    if before.kind is MoveKind.GIVEN_UP:
        return f"{before.broker} had given it up: {before.why}"
    if before.broker == move.broker:
        return "this broker had it before, and was gone"
    return f"{before.broker} had it, and was gone"


def _decoded(name: str, value: bytes) -> list[Move]:
    """Returns the moves of a record; none for other bytes, which the log tells of."""
    try:
        return [
            Move(int(at_ms), str(bundle), name, MoveKind(kind), str(why))
            for at_ms, bundle, kind, why in json.loads(value)
        ]
    except (TypeError, ValueError) as error:
        log.warning("! the moves of broker %s cannot be read: %s", name, error)
        return []
