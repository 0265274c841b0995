"""The inventory: the bytes that it lists of an entry log that a kill left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH
from bookie_stub.disk.entry_log import HEADER_BYTES, encode_header, file_name
from bookie_stub.disk.inventory import IndexCounts, Inventory, read_inventory
from bookie_stub.tools.log_completeness import ScannedLog

ENTRY = KEY.pack(7, 0) + bytes(100)
RECORD = LENGTH.pack(len(ENTRY)) + ENTRY


def growing_log(directory: Path, content: bytes) -> Path:
    """Writes log 0 without a ledgers map, as a kill leaves it."""
    path = directory / file_name(0)
    path.write_bytes(encode_header().ljust(HEADER_BYTES, b"\0") + content)
    return path


def listed_at_start(directory: Path) -> int:
    """Opens the inventory, writes it, and returns the bytes that it lists of log 0."""
    Inventory(directory, FileSystem()).flushed((), None, IndexCounts())
    contents = read_inventory(directory)
    assert contents is not None
    return contents.growing[0]


@pytest.mark.parametrize("torn", [0, 2, 20, len(RECORD) - 1])
def test_inventory_lists_an_unlisted_log_up_to_its_last_complete_record(tmp_path: Path, torn: int) -> None:
    growing_log(tmp_path, 3 * RECORD + RECORD[:torn])
    assert listed_at_start(tmp_path) == HEADER_BYTES + 3 * len(RECORD)
    assert Inventory(tmp_path, FileSystem()).shorter == []


def test_check_finds_no_damage_in_a_log_that_a_kill_tore_before_it_was_listed(tmp_path: Path) -> None:
    growing_log(tmp_path, 3 * RECORD + RECORD[:50])
    listed_at_start(tmp_path)
    log = ScannedLog(tmp_path, 0)
    assert len(list(log)) == 3
    assert log.completeness(read_inventory(tmp_path)).flaw == ""


def test_inventory_reports_a_log_that_lost_a_record_since_it_was_listed(tmp_path: Path) -> None:
    path = growing_log(tmp_path, 3 * RECORD)
    listed_at_start(tmp_path)
    path.write_bytes(path.read_bytes()[: -len(RECORD)])
    assert Inventory(tmp_path, FileSystem()).shorter == [0]


def test_inventory_lists_an_empty_log_with_no_bytes(tmp_path: Path) -> None:
    """BookKeeper allocates the next log as an empty file."""
    (tmp_path / file_name(0)).touch()
    assert listed_at_start(tmp_path) == 0
    assert Inventory(tmp_path, FileSystem()).shorter == []


def test_inventory_syncs_an_unlisted_log_before_it_lists_it(tmp_path: Path) -> None:
    synced: list[int] = []

    class Noting(FileSystem):
        """Notes the size of each file that is synced."""

        def open_to_write(self, path: Path) -> int:
            synced.append(path.stat().st_size)
            return super().open_to_write(path)

    path = growing_log(tmp_path, RECORD)
    Inventory(tmp_path, Noting())
    assert synced == [path.stat().st_size]
