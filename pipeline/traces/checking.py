"""Checks the files of an access record before any job reads them.

A sound file is read, a damaged one is rejected with one reason, and a readable oddity becomes a remark. `find_files`
reads the ends of the files; `check_file` then reads each whole file once, with its checksums, as a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from broker.recorder.errors import RecordError
from broker.recorder.record_reader import (
    BrokerLifetime,
    FileOnDisk,
    Found,
    RejectedFile,
    batches,
    find,
    look_at,
)
from broker.recorder.sampling import Ints
from entry_cache.observe.cache_events import COUNTS_READS, Op

CLOCK_STEP_US: Final = 1_000_000
"""The step back in `ts`, in microseconds, that counts as a clock jump.

Smaller steps are normal: rows of one turn of the broker's loop are not in the order of their times.
"""

_UNCOUNTED: Final = (
    "recorded with cacheEvictionByExpectedReadCount=false, and every replay is as with false, whatever else it changes: "
    "reads are not counted, and entries before the slowest cursor are invalidated; set it to true and record again "
    "to see the difference"
)

_KNOWN_OPS: Final = frozenset(op.value for op in Op)
_REQUESTS: Final = (Op.APPEND, Op.HIT, Op.MISS, Op.COALESCED)
"""Operations whose entries a replay works on; all others cost it as much or less."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The result of reading one whole file."""

    path: str
    """Of the file, as given to `check_file`."""
    reason: str
    """The defect that makes the file unusable; empty for a sound file."""
    rows: int = 0
    """Events in the file."""
    requests: int = 0
    """Entries appended or read, counted by entry: a row may be about a run of them."""
    first_us: int = 0
    """The lowest `ts`, in microseconds since 1970."""
    last_us: int = 0
    """The highest `ts`."""
    steps_back: int = 0
    """How often `ts` falls by more than CLOCK_STEP_US from one row to the next."""
    doubled: int = 0
    """Entries with two APPEND rows, which no broker writes."""
    uncounted: bool = False
    """True where a topic was opened without counting expected reads."""
    hits: int = 0
    """Entries read from the cache."""
    reads: int = 0
    """Entries read, from the cache or from storage."""
    appended: int = 0
    """Entries appended."""
    appended_bytes: int = 0
    """Their bytes."""


@dataclass(slots=True)
class Checked:
    """The sound files of an access record, and the rejected ones."""

    lifetimes: list[BrokerLifetime] = field(default_factory=list)
    """Each with its sound files; a lifetime without any is left out."""
    rejected: list[RejectedFile] = field(default_factory=list)
    """Files that no job reads, each with the reason."""
    remarks: list[str] = field(default_factory=list)
    """Oddities of sound files, a sentence each."""
    span_us: tuple[int, int] = (0, 0)
    """The lowest and the highest `ts` of all files, in microseconds since 1970."""
    requests: int = 0
    """Entries appended or read, of all sound files.

    A sample has its share of them, while its share of the rows is larger: it divides runs of entries.
    """
    hits: int = 0
    """Entries read from the cache, of all sound files."""
    reads: int = 0
    """Entries read from the cache or from storage, of all sound files."""
    entry_bytes: float = 1.0
    """The mean size of an appended entry."""
    file_spans_us: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By path, the lowest and the highest `ts` of a sound file."""
    recorded_s: float = 0.0
    """The seconds that a broker was recorded for: the mean of all brokers, without the gaps between lifetimes."""
    counts_reads: bool = True
    """False where at least a part was recorded with `cacheEvictionByExpectedReadCount=false`."""

    @property
    def rows(self) -> int:
        """Rows of all sound files."""
        return sum(lifetime.rows for lifetime in self.lifetimes)

    @property
    def files(self) -> list[FileOnDisk]:
        """All sound files, by lifetime and in order."""
        return [file for lifetime in self.lifetimes for file in lifetime.files]

    def summary(self) -> list[str]:
        """Returns lines for a report: counts, rejected files with their reasons, remarks."""
        brokers = len({lifetime.broker for lifetime in self.lifetimes})
        lines = [
            f"{self.rows:,} rows in {counted(len(self.files), 'file')}, {counted(len(self.lifetimes), 'lifetime')} of "
            f"{counted(brokers, 'broker')}"
        ]
        if self.rejected:
            lines.append(f"{counted(len(self.rejected), 'file')} rejected:")
            lines += [f"  {one.path}: {one.reason}" for one in self.rejected]
        return lines + [f"note: {remark}" for remark in self.remarks]


def counted(number: int, noun: str) -> str:
    """Formats a number with its noun: "1 file", "2 files"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def check_file(path: Path) -> FileCheck:
    """Reads a whole file, a batch of its rows at a time, and returns its defect or its facts."""
    tally = _Tally()
    try:
        for batch in batches(look_at(path)):
            tally.add(batch)
            if tally.unknown:
                break
    except RecordError as error:
        return FileCheck(str(path), str(error).removeprefix(f"{path}: "))
    if not tally.rows:
        return FileCheck(str(path), "it has no rows")
    if tally.unknown:
        return FileCheck(str(path), f"it has events of a kind that is not known here: op {tally.unknown[0]}")
    return tally.check_of(path)


class _Tally:
    """The facts about the rows of a file so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.unknown: list[int] = []
        """Numbers of operations that this version does not know."""
        self._by_op: Ints = np.zeros(256, np.int64)
        """Entries by operation."""
        self._appended_bytes = 0
        self._first_us, self._last_us = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        self._newest_us: int | None = None
        self._steps_back = self._doubled = 0
        self._ends: dict[int, int] = {}
        """By ledger, the end of its newest append."""
        self._uncounted = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows."""
        if not batch.num_rows:
            return
        ops, times, counts = (_column(batch, name) for name in ("op", "ts", "count"))
        rows_by_op = np.bincount(ops, minlength=256)
        self.unknown = sorted(set(np.flatnonzero(rows_by_op).tolist()) - _KNOWN_OPS)
        self.rows += batch.num_rows
        # Exact: a double holds the sum of 65,536 numbers of 32 bits.
        self._by_op += np.bincount(ops, counts, minlength=256).astype(np.int64)
        self._first_us = min(self._first_us, int(times.min()))
        self._last_us = max(self._last_us, int(times.max()))
        # Rows are in the order of the events, so `ts` should hardly ever fall.
        before = times[:1] if self._newest_us is None else [self._newest_us]
        self._steps_back += int(np.count_nonzero(np.diff(times, prepend=before) < -CLOCK_STEP_US))
        self._newest_us = int(times[-1])
        if rows_by_op[Op.OPEN]:
            opened = _column(batch, "detail")[ops == Op.OPEN]
            self._uncounted |= bool(((opened & COUNTS_READS) == 0).any())
        if rows_by_op[Op.APPEND]:
            chosen = np.flatnonzero(ops == Op.APPEND)
            ledgers, firsts, sizes = (_column(batch, name)[chosen] for name in ("ledger", "entry", "bytes"))
            self._appended_bytes += int(sizes.sum())
            self._doubled += _appended_twice(ledgers, firsts, counts[chosen], self._ends)

    def check_of(self, path: Path) -> FileCheck:
        """Returns the facts as those of a sound file."""
        hits = int(self._by_op[Op.HIT])
        return FileCheck(
            path=str(path),
            reason="",
            rows=self.rows,
            requests=int(self._by_op[list(_REQUESTS)].sum()),
            first_us=self._first_us,
            last_us=self._last_us,
            steps_back=self._steps_back,
            doubled=self._doubled,
            uncounted=self._uncounted,
            hits=hits,
            # ARRIVED and not MISS: a request may bring fewer entries than it asked for, or none.
            reads=hits + int(self._by_op[Op.ARRIVED]),
            appended=int(self._by_op[Op.APPEND]),
            appended_bytes=self._appended_bytes,
        )


def _column(batch: pa.RecordBatch, name: str) -> Ints:
    values: Ints = batch.column(name).to_numpy()
    return values


def _appended_twice(ledgers: Ints, firsts: Ints, counts: Ints, ends: dict[int, int]) -> int:
    """Counts entries appended twice, and keeps the end of each ledger's newest append in `ends`.

    Entries are appended in the order of their ids, so a run that begins before the end of the last one repeats entries.
    """
    # Stable, so that each ledger keeps the order of its appends.
    order = np.argsort(ledgers, kind="stable")
    ledgers, firsts, stops = ledgers[order], firsts[order], (firsts + counts)[order]
    begins = np.flatnonzero(np.diff(ledgers, prepend=ledgers[0] - 1))
    before = np.roll(stops, 1)
    before[begins] = [ends.get(ledger, 0) for ledger in ledgers[begins].tolist()]
    last = np.append(begins[1:], len(ledgers)) - 1
    ends.update(zip(ledgers[last].tolist(), stops[last].tolist(), strict=True))
    again = firsts < before
    return int((np.minimum(stops, before) - firsts)[again].sum())


def find_files(paths: Sequence[Path]) -> Checked:
    """Finds the files below the paths, reading their ends alone; their own paths are absolute, for tasks elsewhere.

    RecordError for a path that does not exist.
    """
    for path in paths:
        if not path.exists():
            raise RecordError(f"there is no {path}")
    found = find(path.absolute() for path in paths)
    checked = Checked(found.lifetimes, found.rejected)
    for lifetime in checked.lifetimes:
        _reject_duplicates(lifetime, checked.rejected)
    return checked


def _reject_duplicates(lifetime: BrokerLifetime, rejected: list[RejectedFile]) -> None:
    """Rejects second copies of a file, whose events would count twice."""
    # By sequence number: a copied file has another path and the same number.
    seen: dict[int, FileOnDisk] = {}
    for file in lifetime.files:
        first = seen.setdefault(file.facts.sequence, file)
        if first is not file:
            rejected.append(RejectedFile(file.path, f"the same part of the same lifetime as {first.path}"))
    lifetime.files[:] = seen.values()


def apply_checks(checked: Checked, checks: Iterable[FileCheck]) -> None:
    """Rejects the files that `check_file` found damaged, and adds its remarks."""
    by_path = {check.path: check for check in checks}
    for lifetime in checked.lifetimes:
        for file in list(lifetime.files):
            check = by_path[str(file.path)]
            if check.reason:
                lifetime.files.remove(file)
                checked.rejected.append(RejectedFile(file.path, check.reason))
    checked.lifetimes[:] = [lifetime for lifetime in checked.lifetimes if lifetime.files]
    sound = [by_path[str(file.path)] for file in checked.files]
    if sound:
        checked.span_us = (min(one.first_us for one in sound), max(one.last_us for one in sound))
        checked.file_spans_us = {one.path: (one.first_us, one.last_us) for one in sound}
        checked.requests = sum(one.requests for one in sound)
        checked.hits = sum(one.hits for one in sound)
        checked.reads = sum(one.reads for one in sound)
        appended = sum(one.appended for one in sound)
        checked.entry_bytes = max(sum(one.appended_bytes for one in sound) / max(appended, 1), 1.0)
        checked.recorded_s = _recorded_s(checked.lifetimes, by_path)
    checked.counts_reads = not any(one.uncounted for one in sound)
    checked.remarks += _remarks(checked, by_path)


def _recorded_s(lifetimes: Sequence[BrokerLifetime], by_path: dict[str, FileCheck]) -> float:
    total_us = 0
    for lifetime in lifetimes:
        checks = [by_path[str(file.path)] for file in lifetime.files]
        total_us += max(one.last_us for one in checks) - min(one.first_us for one in checks)
    return total_us / 1e6 / len({lifetime.broker for lifetime in lifetimes})


def _remarks(checked: Checked, by_path: dict[str, FileCheck]) -> list[str]:
    remarks = []
    for file in checked.files:
        check = by_path[str(file.path)]
        if check.steps_back:
            remarks.append(f"{file.path}: the clock went back {check.steps_back} times by more than a second")
        if check.doubled:
            remarks.append(f"{file.path}: {check.doubled} entries were appended twice, which no broker does")
    for lifetime in checked.lifetimes:
        offsets = {file.facts.clock_offset_us for file in lifetime.files}
        if len(offsets) > 1:
            remarks.append(f"{lifetime.broker}, started {lifetime.start}: its files disagree about the clock")
        if reason := lifetime.why_not_exact():
            remarks.append(f"{lifetime.broker}, started {lifetime.start}: not complete: {reason}")
    if not checked.counts_reads:
        remarks.append(_UNCOUNTED)
    software = sorted({file.facts.software for file in checked.files})
    if len(software) > 1:
        remarks.append(f"recorded by several versions: {', '.join(software)}")
    return remarks


def no_record(found: Found | Checked, paths: Sequence[Path]) -> RecordError:
    """Returns the error for paths without a readable record."""
    where = ", ".join(map(str, paths))
    count = len(found.rejected)
    seen = (
        f" ({counted(count, 'file')} rejected, the first because {found.rejected[0].reason})" if count else ""
    )
    return RecordError(
        f"no access record in {where}{seen}: see entryCacheRecordDirectory in docs/reference/access_record.md"
    )
