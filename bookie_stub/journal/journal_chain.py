"""The journals of one directory as a whole: which files belong to it, and where each of them has to end.

A file of ours names the one before it and where that one ends; the note `durable` says where the newest one ends at
least. What is missing between these is damage; what lies behind them is a torn write that nobody was told of. Files that
no other names and that have nothing durable are those whose first write failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.journal.durable_mark import read_durable_mark
from bookie_stub.journal.journal_file import (
    HEADER_BYTES,
    NO_MARK,
    REMEDY,
    JournalReader,
    Mark,
    file_name,
    journal_ids,
    read_header,
    strays,
)


class JournalChain:
    def __init__(self, directory: Path, mark: Mark, *, skip_invalid: bool) -> None:
        """What lies before `mark` is not needed. `skip_invalid` gives up what is damaged."""
        self._directory = directory
        self._mark = mark
        self._skip_invalid = skip_invalid
        self._ids = journal_ids(directory)
        self.flaws: list[str] = []
        """What was given up, a line each, known when all records are read."""
        self.cut = ""
        """That the end of the newest file is missing, which is no flaw: its complete records are there."""
        self.damaged = False
        """Acknowledged records are missing before the record that was given out last, or at the end."""
        self.end = mark
        """Where the newest file ends; known when all records are read."""

    def records(self, *, also_older: bool = False) -> Iterator[bytes]:
        """Raises CorruptJournal, with the file, the offset and the remedy. `also_older`: those before the mark too."""
        for path in strays(self._directory):
            text = f"{path}: a journal's name is its id in hexadecimal digits and .txn; move other files away"
            if not self._skip_invalid:
                raise CorruptJournal(text)
            self.flaws.append(text)
        durable = self._durable()
        befores = {journal_id: self._before(journal_id) for journal_id in self._ids}
        stops = {before.journal_id: before.offset for before in befores.values() if before is not None}
        self._look_for_missing(befores, durable)
        for journal_id in self._ids:
            if journal_id < self._mark.journal_id and not also_older:
                continue
            offset = self._mark.offset if journal_id == self._mark.journal_id and not also_older else 0
            path = self._path(journal_id)
            stop = stops.get(journal_id)
            reader = JournalReader(path, offset, stop=stop, skip_invalid=self._skip_invalid)
            for record in reader:
                self.damaged |= reader.damaged
                yield record
            self.damaged |= reader.damaged
            self.flaws += reader.flaws
            size = path.stat().st_size
            if journal_id >= self._mark.journal_id:
                self.end = max(self.end, Mark(journal_id, min(reader.end, size)))
            if stop is not None:
                self._check_end(reader, stop)
            elif durable.journal_id == journal_id:
                self._check_newest_end(reader, durable.offset, size)

    def _durable(self) -> Mark:
        try:
            return read_durable_mark(self._directory) or NO_MARK
        except CorruptJournal as error:
            self._damage(str(error))
            return NO_MARK

    def _before(self, journal_id: int) -> Mark | None:
        try:
            header = read_header(self._path(journal_id))
        except CorruptJournal:
            return None  # its reader says it
        return None if header is None else header.before

    def _look_for_missing(self, befores: dict[int, Mark | None], durable: Mark) -> None:
        for journal_id, before in befores.items():
            if before is not None and self._is_missing(before):
                self._damage(
                    f"{self._path(before.journal_id)}, which {file_name(journal_id)} follows, is missing"
                )
        if self._is_missing(durable):
            self._damage(f"{self._path(durable.journal_id)}, the newest one that was written to, is missing")
        marked = self._mark.journal_id
        if marked and marked not in self._ids:
            self._damage(f"{self._path(marked)}, which lastMark names, is missing")
            self._mark = self.end = NO_MARK  # nobody knows what is older

    def _is_missing(self, place: Mark) -> bool:
        """Whether it has anything behind the mark, and is gone."""
        return place > self._mark and place.offset > HEADER_BYTES and place.journal_id not in self._ids

    def _check_end(self, reader: JournalReader, stop: int) -> None:
        if reader.end < stop:
            self._damage(
                f"{reader.path} at {reader.end}: damaged or cut, the next journal follows its end at {stop}"
            )

    def _check_newest_end(self, reader: JournalReader, durable: int, size: int) -> None:
        if reader.end >= durable:
            return
        lost = f"{reader.path} at {reader.end}: records up to {durable} were acknowledged"
        if HEADER_BYTES <= size < durable:
            self.cut = f"{lost}, and it is cut to {size} bytes"
            self.damaged = True
        else:
            self._damage(f"{lost} and are damaged")

    def _damage(self, text: str) -> None:
        if not self._skip_invalid:
            raise CorruptJournal(f"{text}; {REMEDY}")
        self.flaws.append(text)
        self.damaged = True

    def _path(self, journal_id: int) -> Path:
        return self._directory / file_name(journal_id)


def flaws_of(directory: Path, mark: Mark) -> list[str]:
    """What is damaged in a journal directory, a line each, older journals included."""
    chain = JournalChain(directory, mark, skip_invalid=True)
    for _ in chain.records(also_older=True):
        pass
    return [*chain.flaws, chain.cut] if chain.cut else chain.flaws
