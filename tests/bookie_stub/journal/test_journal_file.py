"""JournalReader: which records of a file count when it is cut, damaged, or written by BookKeeper."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from bookie_stub.base.errors import CorruptJournal
from bookie_stub.base.record import frame, master_key_record
from bookie_stub.journal.journal_file import (
    CLOSING_BYTES_MIN,
    HEADER_BYTES,
    NO_MARK,
    closing,
    header,
)
from bookie_stub.journal.journal_reader import JournalReader
from tests.bookie_stub.conftest import record_of

ALIGNMENT = 512
JAVA_HEADER = (b"BKLG" + (6).to_bytes(4, "big")).ljust(HEADER_BYTES, b"\0")


def group_of(records: list[bytes], position: int) -> bytes:
    data = b"".join(records)
    return data + closing(1, position, (data,), ALIGNMENT)


def journal_of(groups: list[list[bytes]]) -> tuple[bytes, list[int]]:
    """The file and the offsets where its groups end."""
    data = header(1, NO_MARK)
    ends = []
    for records in groups:
        data += group_of(records, len(data))
        ends.append(len(data))
    return data, ends


def read(path: Path, **options: bool) -> list[bytes]:
    return list(JournalReader(path, **options))


GROUPS = [
    [master_key_record(1, b"k" * 20), record_of(1, 0)],
    [record_of(1, 1, b"x" * 700), record_of(2, 0), record_of(1, 2)],
    [record_of(1, 3)],
]


ALL = [record for group in GROUPS for record in group]


def test_group_ends_on_the_alignment_boundary() -> None:
    data, ends = journal_of(GROUPS)
    assert all(end % ALIGNMENT == 0 for end in ends)
    assert len(data) == ends[-1]


@pytest.mark.parametrize("left", range(0, 64))
def test_padding_takes_another_block_when_it_does_not_fit(left: int) -> None:
    padding = closing(1, 0, (bytes(ALIGNMENT - left),), ALIGNMENT)
    assert (ALIGNMENT - left + len(padding)) % ALIGNMENT == 0
    assert len(padding) >= 24


def test_reader_returns_the_complete_records_before_any_cut(tmp_path: Path) -> None:
    """A group ends behind its trailer; the rest of its padding may be missing."""
    data, ends = journal_of(GROUPS)
    path = tmp_path / "1.txn"
    starts = [HEADER_BYTES, *ends]
    sizes = [sum(map(len, records)) for records in GROUPS]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        complete = [
            record
            for start, records in zip(starts, GROUPS, strict=False)
            for record, before in zip(records, accumulate(map(len, records), initial=0), strict=False)
            if start + before + len(record) <= cut
        ]
        whole = sum(
            start + size + CLOSING_BYTES_MIN <= cut for start, size in zip(starts, sizes, strict=False)
        )
        reader = JournalReader(path)
        assert list(reader) == complete, cut
        assert reader.end == starts[whole]


def test_reader_returns_the_complete_groups_when_zeros_follow_a_cut(tmp_path: Path) -> None:
    data, ends = journal_of(GROUPS)
    path = tmp_path / "1.txn"
    for cut in range(ends[1] + 1, len(data)):
        path.write_bytes(data[:cut].ljust(1 << 14, b"\0"))
        found = read(path)
        # The padding itself is zeros: losing some of them changes nothing.
        assert found in (ALL[:5], ALL), cut
        if cut < ends[1] + len(GROUPS[2][0]):
            assert found == ALL[:5], cut


def test_reader_drops_the_last_group_when_a_page_of_it_is_torn(tmp_path: Path) -> None:
    data, ends = journal_of(GROUPS)
    path = tmp_path / "1.txn"
    torn = bytearray(data[: ends[1]])
    torn[ends[0] + 40 : ends[0] + 600] = bytes(560)  # the length survived, the body did not
    path.write_bytes(torn)
    assert read(path) == GROUPS[0]


def test_reader_refuses_damage_before_an_intact_group(tmp_path: Path) -> None:
    data, ends = journal_of(GROUPS)
    path = tmp_path / "1.txn"
    for position in range(ends[0], ends[0] + 200, 7):
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(CorruptJournal, match="skipReplayJournalInvalidRecord"):
            read(path)
        assert read(path, skip_invalid=True) == GROUPS[0] + GROUPS[2]


def test_reader_returns_every_record_of_a_bookkeeper_file(tmp_path: Path) -> None:
    records = [record_of(5, entry, b"y" * entry) for entry in range(4)]
    padding = (-0x100).to_bytes(4, "big", signed=True) + (100).to_bytes(4, "big") + bytes(100)
    data = JAVA_HEADER + records[0] + records[1] + padding + records[2] + records[3]
    path = tmp_path / "1.txn"
    for cut in range(HEADER_BYTES, len(data) + 1):
        path.write_bytes(data[:cut])
        found = read(path)
        assert found == records[: len(found)], cut
        taken = HEADER_BYTES + sum(map(len, records[: len(found)])) + (108 if len(found) > 2 else 0)
        following = records[len(found)] if len(found) < 4 else b"?"
        assert cut - taken < len(following) + 108
    path.write_bytes(data + bytes(4096))
    assert read(path) == records


def test_reader_refuses_a_negative_length_in_a_bookkeeper_file(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(JAVA_HEADER + record_of(1, 0) + b"\xff\xff\xff\xf0" + bytes(20))
    with pytest.raises(CorruptJournal):
        read(path)
    assert read(path, skip_invalid=True) == [record_of(1, 0)]


@pytest.mark.parametrize(
    "content", [b"", b"BKLG", b"BKLG" + (4).to_bytes(4, "big") + bytes(600), b"junk" * 300]
)
def test_reader_refuses_a_file_that_is_no_journal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(content)
    if len(content) < HEADER_BYTES:
        assert read(path) == []
    else:
        with pytest.raises(CorruptJournal):
            read(path)


def test_reader_returns_no_record_of_an_allocated_file(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(bytes(1 << 14))
    assert read(path) == []
    path.write_bytes(header(1, NO_MARK) + bytes(1 << 14))
    assert read(path) == []


def test_reader_begins_at_the_mark(tmp_path: Path) -> None:
    data, ends = journal_of(GROUPS)
    path = tmp_path / "1.txn"
    path.write_bytes(data)
    assert list(JournalReader(path, ends[0])) == ALL[2:]
    assert list(JournalReader(path, ends[2])) == []


def test_reader_takes_padding_bytes_inside_an_entry_for_payload(tmp_path: Path) -> None:
    """The bytes of a padding record inside an entry are not taken for the end of the group."""
    inner = frame(record_of(9, 9)[4:] + closing(1, 512, (b"",), ALIGNMENT))
    data, _ = journal_of([[inner, record_of(1, 1)]])
    path = tmp_path / "1.txn"
    path.write_bytes(data)
    assert read(path) == [inner, record_of(1, 1)]


def test_reader_drops_a_group_copied_from_another_file_or_place(tmp_path: Path) -> None:
    data, ends = journal_of(GROUPS)
    (tmp_path / "2.txn").write_bytes(header(2, NO_MARK) + data[HEADER_BYTES:])
    assert read(tmp_path / "2.txn") == []
    (tmp_path / "1.txn").write_bytes(data[: ends[0]] + data[ends[1] :] + bytes(4096))
    assert read(tmp_path / "1.txn") == GROUPS[0]


def test_reader_drops_a_group_inside_a_torn_entry(tmp_path: Path) -> None:
    forged = group_of([record_of(6, 6)], 0)
    data, ends = journal_of([GROUPS[0], [record_of(1, 1, b"..." + forged * 8)]])
    (tmp_path / "1.txn").write_bytes(data[: ends[1] - 600] + bytes(4096))
    assert read(tmp_path / "1.txn") == GROUPS[0]


def test_reader_returns_the_complete_records_of_a_cut_bookkeeper_file(tmp_path: Path) -> None:
    """Without checksums a record counts as soon as it is complete, and a cut one ends the file without an error."""
    records = [record_of(1, entry, b"x" * 20) for entry in range(4)]
    start = b"BKLG" + (6).to_bytes(4, "big")
    whole = start.ljust(512, b"\0") + b"".join(records)
    path = tmp_path / "1.txn"
    for cut in range(512 + len(records[0]), len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert read(path) == records[: (cut - 512) // len(records[0])]
        complete = (cut - 512) // len(records[0])
        path.write_bytes(whole[:cut].ljust(cut + 100, b"\0"))
        assert read(path)[:complete] == records[:complete]
