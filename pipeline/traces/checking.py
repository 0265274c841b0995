"""Checks of record files before any job reads them: each file is sound, or is set aside with one clear reason.

The ends of the files are looked at here (`broker.recorder.record_reader`), their pages and rows where Spark runs the
check: a file is read once, in whole, with its checksums. What is odd but readable is a remark, not a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from broker.entry_cache.observe.cache_events import COUNTS_READS, Op
from broker.recorder.errors import RecordError
from broker.recorder.record_reader import FileOnDisk, Found, RunOfBroker, SetAside, find, look_at, read_table

CLOCK_STEP_US: Final = 1_000_000
"""`ts` may step back by less than a turn of the broker's loop; more than this is a clock that jumped."""

UNCOUNTED: Final = (
    "recorded with cacheEvictionByExpectedReadCount=false, and every replay is as with false, whatever else it changes: "
    "nobody's reads are counted, and what stands before the slowest cursor is dropped; set it to true and record again "
    "to see what that brings"
)

KNOWN_OPS: Final = frozenset(op.value for op in Op)


@dataclass(frozen=True, slots=True)
class FileCheck:
    path: str
    reason: str
    """Why it cannot be read; empty for a sound file."""
    rows: int = 0
    first_us: int = 0
    last_us: int = 0
    steps_back: int = 0
    """How often the clock went back by more than a second from one row to the next."""
    doubled: int = 0
    """Entries that it says were appended twice."""
    uncounted: bool = False
    """Whether a topic was opened without counting expected reads."""


@dataclass(slots=True)
class Checked:
    """What a job may read, and what it may not."""

    runs: list[RunOfBroker] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    span_us: tuple[int, int] = (0, 0)
    """The first and the last time in all files."""
    counts_reads: bool = True
    """False for a record made with `cacheEvictionByExpectedReadCount=false`, at least in part."""

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    @property
    def files(self) -> list[FileOnDisk]:
        return [file for run in self.runs for file in run.files]

    def summary(self) -> list[str]:
        """Text for people, a line each: what there is, and what was not read and why."""
        brokers = len({run.broker for run in self.runs})
        lines = [f"{self.rows:,} rows in {len(self.files)} files, {len(self.runs)} runs of {brokers} brokers"]
        if self.set_aside:
            lines.append(f"{len(self.set_aside)} files set aside:")
            lines += [f"  {one.path}: {one.reason}" for one in self.set_aside]
        return lines + [f"note: {remark}" for remark in self.remarks]


def check_file(path: Path) -> FileCheck:
    """Read the whole file and say what is wrong with it."""
    try:
        table = read_table(look_at(path))
    except RecordError as error:
        return FileCheck(str(path), str(error).removeprefix(f"{path}: "))
    if not table.num_rows:
        return FileCheck(str(path), "it has no rows")
    ops, times = _column(table, "op"), _column(table, "ts")
    unknown = sorted(set(np.unique(ops).tolist()) - KNOWN_OPS)
    if unknown:
        return FileCheck(str(path), f"it has events of a kind that is not known here: op {unknown[0]}")
    steps = int(np.count_nonzero(np.diff(times) < -CLOCK_STEP_US))
    span = (int(times.min()), int(times.max()))
    uncounted = bool(((_column(table, "detail")[ops == Op.OPEN] & COUNTS_READS) == 0).any())
    return FileCheck(str(path), "", table.num_rows, *span, steps, _appended_twice(table, ops), uncounted)


def _column(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    values: np.ndarray[tuple[int], np.dtype[np.int64]] = table.column(name).to_numpy()
    return values


def _appended_twice(table: pa.Table, ops: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Ledgers are appended to in order, so a run that begins before the end of the one before is there again."""
    appended = np.flatnonzero(ops == Op.APPEND)
    if not len(appended):
        return 0
    ledgers, firsts, counts = (_column(table, name)[appended] for name in ("ledger", "entry", "count"))
    order = np.argsort(ledgers, kind="stable")
    ledgers, firsts, ends = ledgers[order], firsts[order], (firsts + counts)[order]
    again = (ledgers[1:] == ledgers[:-1]) & (firsts[1:] < ends[:-1])
    return int((np.minimum(ends[1:], ends[:-1]) - firsts[1:])[again].sum())


def find_files(paths: Sequence[Path]) -> Checked:
    """By the ends of the files alone. RecordError where a path does not exist."""
    for path in paths:
        if not path.exists():
            raise RecordError(f"there is no {path}")
    found = find(paths)
    checked = Checked(found.runs, found.set_aside)
    for run in checked.runs:
        _set_doubles_aside(run, checked.set_aside)
    return checked


def _set_doubles_aside(run: RunOfBroker, set_aside: list[SetAside]) -> None:
    """A file that is there twice, under two names, would count twice."""
    seen: dict[int, FileOnDisk] = {}
    for file in run.files:
        first = seen.setdefault(file.facts.sequence, file)
        if first is not file:
            set_aside.append(SetAside(file.path, f"the same part of the same run as {first.path}"))
    run.files[:] = seen.values()


def apply_checks(checked: Checked, checks: Iterable[FileCheck]) -> None:
    """Take out what the full reading has found wrong, and keep what it found odd."""
    by_path = {check.path: check for check in checks}
    for run in checked.runs:
        for file in list(run.files):
            check = by_path[str(file.path)]
            if check.reason:
                run.files.remove(file)
                checked.set_aside.append(SetAside(file.path, check.reason))
    checked.runs[:] = [run for run in checked.runs if run.files]
    sound = [by_path[str(file.path)] for file in checked.files]
    if sound:
        checked.span_us = (min(one.first_us for one in sound), max(one.last_us for one in sound))
    checked.counts_reads = not any(one.uncounted for one in sound)
    checked.remarks += _remarks(checked, by_path)


def _remarks(checked: Checked, by_path: dict[str, FileCheck]) -> list[str]:
    remarks = []
    for file in checked.files:
        check = by_path[str(file.path)]
        if check.steps_back:
            remarks.append(f"{file.path}: the clock went back {check.steps_back} times by more than a second")
        if check.doubled:
            remarks.append(f"{file.path}: {check.doubled} entries were appended twice, which no broker does")
    for run in checked.runs:
        offsets = {file.facts.clock_offset_us for file in run.files}
        if len(offsets) > 1:
            remarks.append(f"{run.broker}, started {run.start}: its files disagree about the clock")
        if reason := run.why_not_exact():
            remarks.append(f"{run.broker}, started {run.start}: not complete: {reason}")
    if not checked.counts_reads:
        remarks.append(UNCOUNTED)
    software = sorted({file.facts.software for file in checked.files})
    if len(software) > 1:
        remarks.append(f"recorded by several versions: {', '.join(software)}")
    return remarks


def no_record(found: Found | Checked, paths: Sequence[Path]) -> RecordError:
    """The one sentence for a folder without a record."""
    where = ", ".join(map(str, paths))
    count = len(found.set_aside)
    seen = f"; {count} files were set aside, the first because {found.set_aside[0].reason}" if count else ""
    return RecordError(f"no access record in {where}{seen}: see entryCacheRecordDirectory in docs/record.md")
