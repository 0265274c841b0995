"""Late imports leave the loop to others: no pass of the garbage collector meanwhile, and none over the modules later."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foundation.loop.late_imports import import_late

MODULE = "imported_late_for_a_test"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """Writes the text of the module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield (tmp_path / f"{MODULE}.py").write_text
    sys.modules.pop(MODULE, None)
    gc.unfreeze()


async def test_collector_makes_no_pass_during_an_import_and_its_objects_are_frozen(
    write: Callable[[str], object],
) -> None:
    write("import gc\nmade = [[] for _ in range(10_000)]\ncollecting = gc.isenabled()\n")
    gc.collect()
    frozen = gc.get_freeze_count()
    await import_late(MODULE)
    assert not sys.modules[MODULE].collecting
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + 10_000


async def test_collector_goes_on_after_an_import_that_fails(
    write: Callable[[str], object],
) -> None:
    write("raise LookupError\n")
    with pytest.raises(LookupError):
        await import_late(MODULE)
    assert gc.isenabled()
