"""The removal queue step by step: what a moving picture of a golden script shows.

A pass is run in slices of one visit, so that each visit is a step of its own; a long queue is run in slices of one round.
A pass in slices removes exactly what the whole pass would have removed, so the state at the end of each operation is still
the recorded one, and `frames_of` compares it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from entry_cache.policy import Removed
from tests.vectors.eviction import EvictionReplay
from tests.vectors.scripts import Op, differences

TIME_PASS: Final = "Time pass"
SIZE_PASS: Final = "size pass"
PASSES: Final = (TIME_PASS, SIZE_PASS)
"""End of the names of frames that are visits of a pass."""
VISITS_EACH_MAX: Final = 12
"""Longer queues are visited a round at a time: a step for each visit would take a minute to watch."""


@dataclass(frozen=True)
class Slot:
    """A place in the queue: an entry as it was at the end of a step."""

    entry: int
    requeues: int
    accessed: bool
    expected: int | None
    """None for an entry that is not counted."""
    invalidated: bool = False
    """The entry is gone, and its place waits for a pass."""


@dataclass(frozen=True)
class Frame:
    """One step, and the queue after it with the head first."""

    name: str
    """The operation in a few words."""
    outcome: str
    """More about it: the outcome of a visit, or how many reads an insert expects. Empty if there is no more."""
    queue: tuple[Slot, ...]
    op: int
    """The operation of the script, counted from 0."""

    @property
    def text(self) -> str:
        """Name and outcome."""
        return f"{self.name}: {self.outcome}" if self.outcome else self.name


class SteppedReplay(EvictionReplay):
    """Replays a script and takes down a frame for each visit of a pass."""

    def __init__(self, script: Op) -> None:
        super().__init__(script)
        self.frames: list[Frame] = []
        """The steps of the operation that ran last."""
        self._known: dict[int, Slot] = {}
        """By entry: how it looked when it was cached."""

    def look(self) -> tuple[Slot, ...]:
        """Returns the queue as it stands."""
        slots = []
        for entry in self.policy:
            if entry.cached:
                self._known[entry.entry_id] = Slot(
                    entry.entry_id, entry.requeue_count, bool(entry.accessed), entry.expected_reads
                )
            slots.append(replace(self._known[entry.entry_id], invalidated=not entry.cached))
        return tuple(slots)

    def do_evict_by_timestamp(self, op: Op) -> Op:
        eviction = self.manager.eviction
        return self._passed(TIME_PASS, lambda visits: eviction.expire(op["threshold"], self.now, visits))

    def do_evict_by_size(self, op: Op) -> Op:
        eviction = self.manager.eviction
        begun = eviction.policy.begin_size_pass(op["bytes"])
        return self._passed(
            f"{op['bytes']}-byte {SIZE_PASS}", lambda visits: eviction.free(begun, self.now, visits)
        )

    def _passed(self, name: str, run: Callable[[int], Removed]) -> Op:
        """Runs a pass in slices. Its last frame is the one in which it needs nothing more."""
        count = size_bytes = 0
        done = False
        while not done:
            before = self.look()
            visits = 1 if len(before) <= VISITS_EACH_MAX else len(before)
            removed = run(visits)
            count += len(removed.entries)
            size_bytes += removed.size_bytes
            done = removed.done
            text = _round(before, self.look()) if visits > 1 else _visit(before, self.look())
            if text or not self.frames:
                self.frames.append(Frame(name, text or "the head stays", self.look(), 0))
        return {"result": [count, size_bytes]}


def _visit(before: tuple[Slot, ...], after: tuple[Slot, ...]) -> str:
    """Says what became of the head; empty if the pass stopped there."""
    if before == after:
        return ""
    head = before[0]
    if head.invalidated:
        return f"{head.entry} is dropped, an empty slot"
    if len(after) < len(before):
        return f"{head.entry} is removed{_why_removed(head)}"
    return f"{head.entry} is requeued, " + ("it was read" if head.accessed else _reads(head) + " expected")


def _why_removed(head: Slot) -> str:
    if head.expected and head.expected > 0:
        return ", its requeues are used up"
    return ", not counted" if head.expected is None else ", no reads expected"


def _reads(slot: Slot) -> str:
    return f"{slot.expected} read{'' if slot.expected == 1 else 's'}"


def _round(before: tuple[Slot, ...], after: tuple[Slot, ...]) -> str:
    gone = [slot.entry for slot in before if slot.entry not in {left.entry for left in after}]
    if gone:
        return f"{ids(gone)} {'is' if len(gone) == 1 else 'are'} removed"
    return "one round, all are requeued" if before != after else ""


def ids(entries: list[int]) -> str:
    """Returns consecutive ids as `0-5`, others one by one."""
    if len(entries) > 1 and entries == list(range(entries[0], entries[-1] + 1)):
        return f"{entries[0]}-{entries[-1]}"
    return ", ".join(map(str, entries))


def _insert(op: Op) -> tuple[str, str]:
    expected = op["expected"]
    counted = "not counted" if expected < 1 else f"{expected} read{'' if expected == 1 else 's'} expected"
    return f"Insert {op['entry']}", counted


def _read(op: Op) -> tuple[str, str]:
    first, last = (op["entry"], op["entry"]) if op["op"] == "get" else (op["first"], op["last"])
    hits = op["expect"].get("hits", [first])
    if not hits:
        return f"Read {first}-{last} of another ledger", "not cached"
    return f"{'Deliver' if op.get('consume') else 'Read'} {ids(hits)}", ""


def _invalidate(op: Op) -> tuple[str, str]:
    gone = [removed[2] for removed in op["expect"]["removed"]]
    return f"Invalidate {ids(gone)}", "the slots stay" if len(gone) > 1 else "the slot stays"


TEXTS: Final[dict[str, Callable[[Op], tuple[str, str]]]] = {
    "insert": _insert,
    "get": _read,
    "get_range": _read,
    "remove_range": _invalidate,
}
"""Name and outcome of each operation that is one step. Those that are missing are passes, or cannot be drawn."""


def frames_of(script: Op) -> list[Frame]:
    """Returns the steps of a script up to the last that changes something. ValueError if a state is not the recorded one."""
    replay = SteppedReplay(script)
    frames: list[Frame] = []
    for number, op in enumerate(script["ops"]):
        replay.frames = []
        before = replay.look()
        got = replay.apply(op)
        if wrong := differences(op["expect"], got):
            raise ValueError(f"{script['name']}: operation {number} differs from the record: {wrong[0]}")
        if op["op"] in TEXTS:
            replay.frames = [Frame(*TEXTS[op["op"]](op), replay.look(), number)]
        if op["op"] in TEXTS or before or replay.look():
            frames += [replace(frame, op=number) for frame in replay.frames]
    return frames


@dataclass(frozen=True)
class Row:
    """Neighbouring steps of one kind, for the summary of a picture."""

    text: str
    """The steps in a few words."""
    outcome: str
    """Visits of a pass, empty for other steps."""
    frames: tuple[Frame, ...]


def rows_of(frames: list[Frame]) -> list[Row]:
    """Puts inserts together, reads together, and the visits of each pass."""
    rows = []
    for _, found in itertools.groupby(frames, key=_kind):
        together = tuple(found)
        if together[0].name.endswith(PASSES):
            rows.append(Row(together[0].name, _outcome(together), together))
        else:
            rows.append(Row(_listed(together), "", together))
    return rows


def _kind(frame: Frame) -> object:
    return frame.op if frame.name.endswith(PASSES) else frame.name.partition(" ")[0]


def _listed(row: tuple[Frame, ...]) -> str:
    if len(row) == 1:
        return row[0].text
    word = row[0].name.partition(" ")[0]
    named = [frame.name.partition(" ")[2] for frame in row]
    numbers = [int(name) for name in named if name.isdigit()]
    listed = ids(numbers) if len(numbers) == len(named) else ", then ".join(named)
    same = {frame.outcome for frame in row}
    return f"{word} {listed}" + (f": {row[0].outcome}" if row[0].outcome and len(same) == 1 else "")


def _outcome(row: tuple[Frame, ...]) -> str:
    if len(row) == 1:
        return row[0].outcome
    found: dict[str, list[str]] = {}
    for frame in row:
        entry, _, became = frame.outcome.partition(" is ")
        found.setdefault(became.partition(",")[0], []).append(entry)
    if all(entry.isdigit() for entries in found.values() for entry in entries):
        return "; ".join(
            f"{ids([int(entry) for entry in entries])} {became}" for became, entries in found.items()
        )
    rounds = len(row) - 1
    return f"{rounds} round{'' if rounds == 1 else 's'}, then {row[-1].outcome}"
