"""read_rows: rows of a database that a running bookie writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.disk.rocks import Rocks, read_rows

PUTS = [(b"key %05d" % number, b"value") for number in range(1000)]


def test_rows_are_read_when_the_files_are_replaced_after_they_were_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    Rocks(path, buffer_bytes=1 << 20).close()
    rocks = Rocks(path, buffer_bytes=1 << 20)
    rocks.write(PUTS, deletes=[], ranges=[])
    rocks.compact()  # All rows are in a table.
    rocks.write(PUTS[:1], deletes=[], ranges=[])
    list_files, listings = Path.iterdir, 0

    def listed(directory: Path) -> Iterator[Path]:
        nonlocal listings
        files = list(list_files(directory))
        if directory == path:
            listings += 1
            if listings == 1:
                rocks.compact()
        return iter(files)

    monkeypatch.setattr(Path, "iterdir", listed)
    with read_rows(path) as rows:
        assert list(rows) == PUTS
    assert listings > 1
    rocks.close()


def test_database_that_is_damaged_is_opened_once(tmp_path: Path) -> None:
    path = tmp_path / "index"
    rocks = Rocks(path, buffer_bytes=1 << 20)
    rocks.write(PUTS, deletes=[], ranges=[])
    rocks.close()
    (path / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(BookieStorageError, match=str(path)) as raised, read_rows(path):
        pass
    assert "index-" not in str(raised.value)
