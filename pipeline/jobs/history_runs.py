"""The runs of the job `history`: what each has read, kept beside the reports.

    OUT/runs/ID/run.json     the files that the run has read, its settings and days
    OUT/runs/ID/reads/       reads by day, broker, topic and subscription, as Parquet

A run is written into `OUT/runs/.ID.part` and renamed as its last step. A run that was killed leaves such a folder,
which the next run removes, and its files are read again: each file is counted once.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker.recorder.record_reader import FileOnDisk

VERSION: Final = 1
"""Of `run.json`; runs of another version are refused."""
READS: Final = "reads"
"""The folder of a run's counts."""


class HistoryError(ValueError):
    """A history cannot be read or extended; the message is one sentence with the remedy."""


FileKey = tuple[str, str, int]
"""Broker, start of its lifetime, and number of the file within it."""


@dataclass(slots=True)
class JobRun:
    """One finished run."""

    id: str
    """UTC time of the run's begin, to the microsecond."""
    files: list[FileKey]
    """The files that it has read."""
    days: list[str] = field(default_factory=list)
    """UTC days with reads, sorted."""
    settings: list[tuple[str, str, str]] = field(default_factory=list)
    """Day, broker and settings of the cache (`CacheSettings.to_text`), once each."""
    has_reads: bool = True
    """False once retention has removed its counts; the names of its files stay."""

    def to_text(self) -> str:
        """Formats the run for its file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)


def file_key(file: FileOnDisk) -> FileKey:
    """Returns the identity of a file, which stays when it is moved or copied."""
    return file.facts.broker, file.facts.start, file.facts.sequence


class RunFolder:
    """The folder `runs` of a history."""

    def __init__(self, out: Path) -> None:
        """`out`: the folder of the reports."""
        # Absolute, since executors write the counts and have working directories of their own.
        self._folder = out.absolute() / "runs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other runs away until the end. HistoryError if one is at work."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HistoryError(
                    f"another run writes into {self._folder.parent}: wait for its end, or give another --out"
                ) from None
            for left in self._folder.glob(".*.part"):
                shutil.rmtree(left)
            yield

    def runs(self) -> list[JobRun]:
        """Returns all finished runs, oldest first. HistoryError for damaged ones."""
        return [self._read(path) for path in sorted(self._folder.glob("*/run.json"))]

    def _read(self, path: Path) -> JobRun:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.pop("version") != VERSION:
                raise HistoryError(f"{path} is of another version of magnetar: give another --out")
            run = JobRun(**found)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, HistoryError):
                raise
            raise HistoryError(
                f"{path} is damaged: remove the folder {path.parent}, and its files are read again"
            ) from None
        run.files = [(str(broker), str(start), int(number)) for broker, start, number in run.files]
        run.settings = [(str(day), str(broker), str(text)) for day, broker, text in run.settings]
        return run

    def begin(self, now: datetime | None = None) -> tuple[str, Path]:
        """Returns the id of a new run and the folder to write it into."""
        run_id = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S.%f")
        part = self._folder / f".{run_id}.part"
        part.mkdir()
        return run_id, part

    def finish(self, run: JobRun, part: Path) -> None:
        """Writes the run's facts and makes it count."""
        with (part / "run.json").open("w", encoding="utf-8") as file:
            file.write(run.to_text())
            file.flush()
            os.fsync(file.fileno())
        # The rename is the moment from which the run counts: before it nothing of the run is ever read.
        part.rename(self._folder / run.id)

    def reads_of(self, runs: Iterable[JobRun]) -> list[str]:
        """Returns the paths of the counts of runs."""
        return [str(self._folder / run.id / READS) for run in runs if run.has_reads]

    def forget(self, runs: Iterable[JobRun], before_day: str, known: set[FileKey]) -> list[JobRun]:
        """Removes the counts of runs whose days all lie before a day; returns the runs that are left.

        A run stays as a list of its files while one of them is still among `known`: otherwise the next run would read
        and count that file again.
        """
        left = []
        for run in runs:
            if run.days and run.days[-1] < before_day:
                folder = self._folder / run.id
                if not known.intersection(run.files):
                    # Renamed first: a removal that is killed halfway would leave a run without its counts.
                    part = self._folder / f".{run.id}.part"
                    folder.rename(part)
                    shutil.rmtree(part)
                    continue
                if run.has_reads:
                    run.has_reads = False
                    changed = folder / "run.json.new"
                    changed.write_text(run.to_text(), encoding="utf-8")
                    changed.replace(folder / "run.json")
                # Also for a run that was marked before: its marking may have been killed before the removal.
                shutil.rmtree(folder / READS, ignore_errors=True)
            left.append(run)
        return left
