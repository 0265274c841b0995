"""Replays access records and prints the counts of the broker, of the record and of the replay."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from broker.recorder.errors import RecordError
from broker.recorder.record_reader import BrokerLifetime, events, find
from entry_cache.observe.replay import Replay
from entry_cache.settings import CacheSettings

PROGRESS_S: Final = 2.0
"""Seconds between two lines of progress."""
PROGRESS_ROWS_MIN: Final = 1_000_000
"""Records with fewer rows print no progress."""


def replay_all(folders: Sequence[Path], out: TextIO) -> bool:
    """Returns True if the folders have records and each was repeated exactly. Progress goes to stderr."""
    found = find(folders)
    for file in found.rejected:
        print(f"rejected: {file.path}: {file.reason}", file=out)
    if not found.lifetimes:
        print("no access record here", file=out)
    equal = bool(found.lifetimes)
    for run in found.lifetimes:
        print(f"{run.broker}, started {run.start}: {len(run.files)} files, {run.rows:,} rows", file=out)
        reason = run.why_not_exact()
        try:
            equal &= _replay(run, out) if not reason else _say(f"cannot be replayed exactly: {reason}", out)
        except (RecordError, ValueError) as error:
            equal &= _say(f"cannot be replayed: {error}", out)
    return equal


def _say(text: str, out: TextIO) -> bool:
    print(text, file=out)
    return False


def _replay(run: BrokerLifetime, out: TextIO) -> bool:
    first = CacheSettings.from_text(run.files[0].facts.settings)
    replay = Replay(first)
    began = time.monotonic()
    progress = _Progress(run.rows)
    for batch in events(run):
        replay.feed(batch)
        progress.advanced(len(batch))
    totals = run.files[-1].facts.totals
    replay.finish(cut_off=totals is None)
    seconds = time.monotonic() - began
    print(f"policy {replay.manager.policy.name}, {replay.events:,} events in {seconds:.1f} s", file=out)
    print(table(totals, replay.recorded_totals, replay.totals), file=out)
    return _verdict(replay, totals, out)


def _verdict(replay: Replay, totals: Mapping[str, int] | None, out: TextIO) -> bool:
    if replay.difference is not None:
        # The first difference only: the cache of the replay is another one from there on, so later ones follow
        # from it.
        print(replay.difference, file=out)
        return _say(f"NOT EQUAL: {replay.differences:,} of {replay.events:,} events", out)
    columns = [replay.recorded_totals, replay.totals, *([totals] if totals is not None else [])]
    # Totals that differ although every event is equal: rows were lost without being counted, or an event has no
    # row.
    if any(column != columns[0] for column in columns):
        return _say("NOT EQUAL: every event was repeated, but the totals differ", out)
    if totals is None:
        print(
            "the broker's own totals and the last event are missing: it did not end in good order", file=out
        )
    print("equal: every event and every total", file=out)
    return True


def table(totals: Mapping[str, int] | None, recorded: Mapping[str, int], replayed: Mapping[str, int]) -> str:
    """Returns the counts side by side: the broker's own, the sums of its events, and the replay's."""
    lines = [f"{'':<28}{'broker':>16}{'record':>16}{'replay':>16}"]
    for name in replayed:
        own = f"{totals.get(name, 0):,}" if totals is not None else "-"
        lines.append(f"{name:<28}{own:>16}{recorded.get(name, 0):>16,}{replayed[name]:>16,}")
    return "\n".join(lines)


class _Progress:
    """Prints the progress of long replays to stderr."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._done = 0
        self._next_s = time.monotonic() + PROGRESS_S

    def advanced(self, rows: int) -> None:
        """Adds replayed rows."""
        self._done += rows
        now_s = time.monotonic()
        if self._rows >= PROGRESS_ROWS_MIN and now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_S
            percent = 100 * self._done / self._rows
            print(f"  {self._done:,} of {self._rows:,} rows, {percent:.0f} %", file=sys.stderr, flush=True)
