"""JournalChain: the journal files of one directory as one sequence.

It proves that no part of the sequence is missing.

Three facts, all ours, say what must be there:

* each header names the journal before and its end: a file that another one names must exist and reach that end
* `durable` names the newest place that was acknowledged: its file must exist and reach it
* `lastMark` names the place from which a replay begins: its file must exist

The law: records that these facts cover are returned or reported as damage; bytes that none of them covers may be a torn
write of which no client was told, and are dropped without a word. A file that no other names and that has nothing
acknowledged is one whose first write failed and that could not be removed, so gaps between ids prove nothing.

`ledgers/replay.py` reads the records at a start, `tools/check_files.py` looks for damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.journal.durable_mark import read_durable_mark
from bookie_stub.journal.journal_file import (
    HEADER_BYTES,
    NO_MARK,
    JournalMark,
    file_name,
    journal_ids,
    read_header,
    strays,
)
from bookie_stub.journal.journal_reader import REMEDY, JournalReader


class JournalChain:
    """Reads one journal directory from a mark on, once."""

    def __init__(self, directory: Path, mark: JournalMark, *, skip_invalid: bool) -> None:
        """Records before `mark` are in entry logs and indexes. `skip_invalid` gives up damage instead of raising."""
        self._directory = directory
        self._mark = mark
        self._skip_invalid = skip_invalid
        self._ids = journal_ids(directory)
        self.flaws: list[str] = []
        """The damage that was given up, one line each; complete when all records are read."""
        self.cut = ""
        """The sentence that the newest file lacks its end, or nothing. A start goes on: its complete records are there."""
        self.damaged = False
        """True once acknowledged records are missing before the record returned last, or at the end."""
        self.end = mark
        """The end of the newest file; known when all records are read."""

    def records(self, *, also_older: bool = False) -> Iterator[bytes]:
        """Yields the records after the mark, size field included.

        With `also_older` those of older files come first.
        Raises CorruptJournal with file, offset and remedy, unless `skip_invalid`; OSError.
        """
        self._refuse_strays()
        durable = self._durable()
        befores = {journal_id: self._before(journal_id) for journal_id in self._ids}
        ends = {before.journal_id: before.offset for before in befores.values() if before is not None}
        self._look_for_missing(befores, durable)
        for journal_id in self._ids:
            if journal_id < self._mark.journal_id and not also_older:
                continue
            offset = self._mark.offset if journal_id == self._mark.journal_id and not also_older else 0
            # Bytes after the end that the next file names are a write that failed; its clients were told so.
            stop = ends.get(journal_id)
            path = self._path(journal_id)
            reader = JournalReader(path, offset, stop=stop, skip_invalid=self._skip_invalid)
            for record in reader:
                self.damaged |= reader.damaged
                yield record
            self.damaged |= reader.damaged
            self.flaws += reader.flaws
            size = path.stat().st_size
            # The end may lie inside the last padding when the file is cut there, so it is bounded by the size.
            if journal_id >= self._mark.journal_id:
                self.end = max(self.end, JournalMark(journal_id, min(reader.end, size)))
            if stop is not None:
                self._check_end(reader, stop)
            elif durable.journal_id == journal_id:
                self._check_newest_end(reader, durable.offset, size)

    def _refuse_strays(self) -> None:
        # A copy such as `old.txn` may be a renamed journal whose records are missing then.
        for path in strays(self._directory):
            text = f"{path}: a journal's name is its id in hexadecimal digits and .txn; move other files away"
            if not self._skip_invalid:
                raise CorruptJournal(text)
            self.flaws.append(text)

    def _durable(self) -> JournalMark:
        try:
            return read_durable_mark(self._directory) or NO_MARK
        except CorruptJournal as error:
            self._damage(str(error))
            return NO_MARK

    def _before(self, journal_id: int) -> JournalMark | None:
        try:
            header = read_header(self._path(journal_id))
        except CorruptJournal:
            return None  # the file's own reader reports it
        return None if header is None else header.before

    def _look_for_missing(self, befores: dict[int, JournalMark | None], durable: JournalMark) -> None:
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
            # The mark itself may be wrong then, so all journals are replayed; a record too many is harmless.
            self._mark = self.end = NO_MARK

    def _is_missing(self, place: JournalMark) -> bool:
        """Returns True when the needed file of `place` is gone. A file is needed when it had a group after the mark."""
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
            # A cut file does not stop a start: each record that is left is believed, and the rest counts as a loss,
            # which puts the ledgers in limbo. Damaged bytes stop it, as some of them may still be repaired.
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


def flaws_of(directory: Path, mark: JournalMark) -> list[str]:
    """Returns the damage in a journal directory, one line each. Older journals are read too."""
    chain = JournalChain(directory, mark, skip_invalid=True)
    for _ in chain.records(also_older=True):
        pass
    return [*chain.flaws, chain.cut] if chain.cut else chain.flaws
