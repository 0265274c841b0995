"""AddSpace: bytes fit into the journal and into an entry log, and two reserves stay free."""

from __future__ import annotations

from pathlib import Path

from bookie_stub.base.disk_reserve import kept_by_adds
from bookie_stub.journal.add_space import AddSpace
from tests.bookie_stub.conftest import FaultyFileSystem


def test_room_is_half_of_what_is_left_after_the_entries_that_no_log_has(tmp_path: Path) -> None:
    file_system = FaultyFileSystem()
    kept = kept_by_adds(tmp_path)
    unwritten = [0]
    space = AddSpace(tmp_path, [tmp_path, tmp_path], file_system, lambda: unwritten[0])
    file_system.free = kept + 1000
    assert space.room() == 500
    unwritten[0] = 400
    assert space.room() == 300
    unwritten[0] = 1200
    assert space.room() < 0
