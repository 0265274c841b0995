"""Rows of the location index: one ledger's, in slices, up to where it says that there is no entry."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY
from bookie_stub.disk.location_index import LOCATION, LocationIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LocationIndex]:
    index = LocationIndex(tmp_path / "locations")
    yield index
    index.close()


def fill(index: LocationIndex, rows: dict[tuple[int, int], int]) -> None:
    index.write([(KEY.pack(*key), LOCATION.pack(location)) for key, location in rows.items()], [])


def listed(index: LocationIndex, ledger: int, first: int, count_max: int) -> list[tuple[int, bytes, int]]:
    return [row for rows in index.rows(ledger, first, count_max) for row in zip(*rows, strict=True)]


def test_rows_are_of_one_ledger_with_its_gaps(index: LocationIndex) -> None:
    fill(index, {(1, 0): 10, (1, 1): 11, (1, 4): 14, (2, 0): 20, (2, 5): 25})
    assert listed(index, 1, 0, 100) == [(entry, KEY.pack(1, entry), 10 + entry) for entry in (0, 1, 4)]
    assert [entry for entry, _, _ in listed(index, 1, 2, 100)] == [4]
    assert [entry for entry, _, _ in listed(index, 2, 0, 1)] == [0]
    assert not listed(index, 1, 5, 100)
    assert not listed(index, 3, 0, 100)
    assert not listed(index, 1, -1, 100)
    assert not listed(index, 1, 2, 1)


def test_rows_come_in_slices_up_to_the_count(index: LocationIndex) -> None:
    fill(index, {(1, entry): 100 + entry for entry in range(500)})
    sizes = [len(rows.ids) for rows in index.rows(1, 10, 300)]
    assert sum(sizes) == 300
    assert len(sizes) > 1
    assert [entry for entry, _, _ in listed(index, 1, 10, 300)] == list(range(10, 310))


@pytest.mark.parametrize("count_max", [1, 2, 100])
def test_rows_end_at_a_location_of_zero(index: LocationIndex, count_max: int) -> None:
    fill(index, {(1, 0): 10, (1, 1): 0, (1, 2): 12})
    assert [entry for entry, _, _ in listed(index, 1, 0, count_max)] == [0]
    assert not listed(index, 1, 1, count_max)


def test_rows_fetch_no_slice_behind_the_last_row(
    index: LocationIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows of other ledgers may follow."""

    def items_from(key: bytes) -> Iterator[tuple[bytes, bytes]]:
        for ledger in range(1, 1000):
            yield KEY.pack(ledger, 0), LOCATION.pack(7)
            assert ledger < 200, "still fetching"

    monkeypatch.setattr(index._rocks, "items_from", items_from)
    assert [entry for entry, _, _ in listed(index, 1, 0, 1 << 30)] == [0]


def test_rows_before_damage_are_read_and_damage_raises(tmp_path: Path) -> None:
    """RocksDB's iterator ends at a damaged block as at the end; "no such entry" would be wrong."""
    index = LocationIndex(tmp_path / "locations")
    noise = random.Random(1)
    entries = range(100_000)
    index.write([(KEY.pack(1, entry), noise.randbytes(7) + b"\1") for entry in entries], ())
    index.close()
    LocationIndex(tmp_path / "locations").close()  # writes what was in memory
    file = max((tmp_path / "locations").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    file.write_bytes(content)
    index = LocationIndex(tmp_path / "locations")
    found = [entry for rows in index.rows(1, 0, len(entries)) for entry in rows.ids]
    with pytest.raises(BookieStorageError, match="checksum mismatch"):
        list(index.rows(1, len(found), len(entries)))
    assert found == list(range(len(found)))
    assert 10_000 < len(found) < 90_000
    with pytest.raises(BookieStorageError, match="checksum mismatch"):
        index._rocks.floor(KEY.pack(1, len(found) + 1))
    index.close()


def test_write_is_durable_when_a_compaction_removes_the_log_that_it_syncs(tmp_path: Path) -> None:
    compacted: list[Path] = []

    class Compacting(FileSystem):
        """Compacts between the listing of the logs and the opening of the newest one."""

        def open_to_read(self, path: Path) -> int:
            if not compacted:
                compacted.append(path)
                compacting.compact()
                assert not path.exists()
            return super().open_to_read(path)

    compacting = LocationIndex(tmp_path / "locations", Compacting())
    fill(compacting, {(1, 0): 10})
    assert compacted
    compacting.close()
    again = LocationIndex(tmp_path / "locations")
    assert [entry for entry, _, _ in listed(again, 1, 0, 100)] == [0]
    again.close()
