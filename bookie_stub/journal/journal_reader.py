"""Reads one journal file, and decides which of its records to believe.

The law: a record that may have been acknowledged is returned or reported, and a torn write never becomes a record.

* A file of ours is read group by group; a group counts when its trailer fits.
* A group that does not fit is torn, and ends the file, unless an intact group follows. The journal's thread never writes
  after a group that failed, so an intact group after it proves that the damaged one was acknowledged.
* Of a group that the end of the file cuts off, the complete records are returned: after a kill without
  `journalSyncData` they may have been acknowledged, and a record too many is harmless.
* A file of BookKeeper has no checksums: every record that is complete in length counts.

`journal_chain` reads the files of a directory through this class; `dump` and `index rebuild` use it file by file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.record import LENGTH, LENGTH_BYTES
from bookie_stub.journal.journal_file import (
    CLOSING_BYTES_MIN,
    HEADER_BYTES,
    PADDING_HEAD_BYTES,
    PADDING_MASK,
    PADDING_START,
    SUFFIX,
    TRAILER_BYTES,
    VERSION,
    VERSION_MIN,
    group_crc,
    id_of,
    parse_header,
    trailer_at,
)

REMEDY = (
    "bring the file back as it was, or give up what is lost with skipReplayJournalInvalidRecord=true:"
    " all ledgers are fenced then, and entries that they lack are answered as unknown"
)
"""The end of every message about damaged acknowledged records."""


class JournalReader:
    """Iterates over the records of one file, from an offset on."""

    def __init__(
        self, path: Path, offset: int = 0, *, stop: int | None = None, skip_invalid: bool = False
    ) -> None:
        """Raises CorruptJournal when the file's name is no journal's.

        `stop` is the end of the acknowledged part, if the next journal names it: bytes after it are a torn write and
        are not read. `skip_invalid` passes over damaged groups instead of raising (skipReplayJournalInvalidRecord).
        """
        journal_id = id_of(path)
        if journal_id is None:
            raise CorruptJournal(
                f"{path}: a journal's name is its id in hexadecimal digits and {SUFFIX}; move the file away"
            )
        self.path = path
        """The file that is read."""
        self.journal_id = journal_id
        """The number in the file's name."""
        self.end = max(offset, HEADER_BYTES)
        """The end of the last believed group, or of the last record in a file of BookKeeper.

        The file itself may end inside that group's padding.
        """
        self.flaws: list[str] = []
        """The damage that `skip_invalid` has passed over, one line each."""
        self.damaged = False
        """True once acknowledged records were passed over. A caller may clear it to see the next damage."""
        self.version = 0
        """The format version in the header; 0 before the header is read, and without one."""
        self.grouped = False
        """True for a file of ours, whose groups have checksums; known when the header is read."""
        self.record_at = self.end
        """The offset of the record that was returned last."""
        self._stop = sys.maxsize if stop is None else stop
        self._skip_invalid = skip_invalid

    def __iter__(self) -> Iterator[bytes]:
        """Yields records, size field included.

        Raises CorruptJournal when intact records follow damaged ones, and for a damaged header.
        """
        if self.path.stat().st_size < HEADER_BYTES:
            return
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            if self.end > HEADER_BYTES and not _length_at(data, self.end):
                # The mark stands at the end of this file, so no record of it is needed. Its header may be damaged and
                # given up by an earlier start; reading it would report the same damage at every start.
                return
            self._read_header(data)
            yield from self._groups(data) if self.grouped else self._plain(data)

    def _read_header(self, data: mmap) -> None:
        # Under `skip_invalid` a file with a damaged header is read as one of ours: groups prove themselves.
        self.grouped = True
        flaw = f"{self.path} at 0: its header is gone, all its bytes are zero"
        try:
            header = parse_header(data[:HEADER_BYTES], self.path)
        except CorruptJournal as error:
            header, flaw = None, str(error)
        if header is not None:
            self.version, self.grouped, _ = header
            if not VERSION_MIN <= self.version <= VERSION:
                raise CorruptJournal(
                    f"{self.path} at 4: journal format version {self.version} is not supported, only"
                    f" {VERSION_MIN} to {VERSION} are"
                )
            return
        following = _next_group(data, self.journal_id, HEADER_BYTES - 1)
        # Only zeros and no group: the machine went down before the first group, and no record is lost.
        if following is not None or any(data[:HEADER_BYTES]):
            self._damage(flaw, following)

    def _damage(self, text: str, following: int | None) -> None:
        if not self._skip_invalid:
            raise CorruptJournal(f"{text}; {REMEDY}")
        self.flaws.append(text)
        self.damaged = True
        if following is not None:
            self.end = max(self.end, following)

    def _plain(self, data: mmap) -> Iterator[bytes]:
        """Yields the records of BookKeeper's file that are complete in length."""
        while self.end < self._stop:
            length = _length_at(data, self.end)
            if length == PADDING_MASK:
                following = _length_at(data, self.end + LENGTH_BYTES)
                if following < 0 or self.end + PADDING_HEAD_BYTES + following > len(data):
                    return
                self.end += PADDING_HEAD_BYTES + following
                continue
            if length < 0:
                # No writer makes such a size field, so it is damage. A size that is too large is a torn end instead.
                self._damage(f"{self.path} at {self.end}: a record of length {length}", None)
                return
            stop = self.end + LENGTH_BYTES + length
            # A zero length is pre-allocated space. A record that ends past the file is torn.
            if length == 0 or stop > len(data):
                return
            self.record_at = self.end
            yield data[self.end : stop]
            self.end = stop

    def _groups(self, data: mmap) -> Iterator[bytes]:
        """Yields the records of a file of ours.

        They are those of groups whose trailer fits, and of a last group that is cut.
        """
        while self.end < self._stop:
            group = _group_at(data, self.journal_id, self.end)
            if group is not None:
                yield from self._records(group.records)
                self.end = group.end
                continue
            # Search the rest of the file for a group that fits: it decides between torn and damaged.
            following = _next_group(data, self.journal_id, self.end)
            if following is None or following >= self._stop:
                yield from self._records(_cut_group(data, self.end))
                return
            self._damage(
                f"{self.path} at {self.end}: damaged, and intact records follow at {following}", following
            )

    def _records(self, records: list[bytes]) -> Iterator[bytes]:
        self.record_at = self.end
        for record in records:
            yield record
            self.record_at += len(record)


class _Group(NamedTuple):
    records: list[bytes]
    end: int


def _length_at(data: mmap, offset: int) -> int:
    """Returns the size field at `offset`. After the end of the file it is 0, which ends a journal."""
    if offset + LENGTH_BYTES > len(data):
        return 0
    length: int = LENGTH.unpack_from(data, offset)[0]
    return length


def _group_at(data: mmap, journal_id: int, start: int) -> _Group | None:
    """Returns the group at `start`, or None when its trailer does not fit."""
    records: list[bytes] = []
    position = start
    while True:
        length = _length_at(data, position)
        if length == PADDING_MASK:
            end = _group_end(data, journal_id, start, position)
            return None if end is None else _Group(records, end)
        stop = position + LENGTH_BYTES + length
        if length <= 0 or stop > len(data):
            return None
        records.append(data[position:stop])
        position = stop


def _group_end(data: mmap, journal_id: int, start: int, padding: int) -> int | None:
    """Returns the end of the group that `padding` closes.

    The group begins at `start`. None when its trailer does not fit. The file may end inside the padding, which holds
    only zeros after the trailer.
    """
    trailer = trailer_at(data, padding)
    size = _length_at(data, padding + LENGTH_BYTES)
    if trailer is None or trailer.group_bytes != padding - start or size < TRAILER_BYTES:
        return None
    end: int = padding + PADDING_HEAD_BYTES + size
    if data[padding + CLOSING_BYTES_MIN : end].strip(b"\0"):
        # The CRC does not cover the padding's own size: a damaged one that is too large would pass over the next group.
        return None
    return end if group_crc(journal_id, start, (data[start:padding],)) == trailer.crc else None


def _cut_group(data: mmap, start: int) -> list[bytes]:
    """Returns the complete records of a group that the file's end cuts. Returns none when the group is damaged."""
    records: list[bytes] = []
    position = start
    while position + LENGTH_BYTES <= len(data):
        length = _length_at(data, position)
        if length == PADDING_MASK:
            return records if position + CLOSING_BYTES_MIN > len(data) else []
        stop = position + LENGTH_BYTES + length
        if length <= 0:
            return []
        if stop > len(data):
            break
        records.append(data[position:stop])
        position = stop
    # With the group's trailer in the file the group is complete, and it is a damaged size field that points past the end.
    return [] if _has_trailer(data, start) else records


def _has_trailer(data: mmap, start: int) -> bool:
    """Returns True when a trailer of a group at `start` exists. The bytes of the group itself may be damaged."""
    padding = start
    while (padding := data.find(PADDING_START, padding + 1)) >= 0:
        trailer = trailer_at(data, padding)
        if trailer is not None and trailer.group_bytes == padding - start:
            return True
    return False


def _next_group(data: mmap, journal_id: int, start: int) -> int | None:
    """Returns the offset of the first intact group after `start`, found by its trailer."""
    padding = start
    while (padding := data.find(PADDING_START, padding + 1)) >= 0:
        trailer = trailer_at(data, padding)
        if trailer is None:
            continue
        group: int = padding - trailer.group_bytes
        if group > start and _group_end(data, journal_id, group, padding) is not None:
            return group
    return None
