"""The tests of a module stand in the folder of the same path below `tests/`, as docs/testing.md says."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

import pytest

from tests.tidy.sources import PRODUCT, ROOT, report, sources

NAME = "test_{}.py"


def modules_of(room: str) -> dict[str, list[PurePath]]:
    """Returns the folders of a room's modules, by the module's name."""
    found: dict[str, list[PurePath]] = defaultdict(list)
    for source in sources(room):
        path = PurePath(source.path)
        if not path.stem.startswith("__"):
            found[path.stem].append(path.parent)
    return found


@pytest.mark.parametrize("room", PRODUCT)
def test_each_folder_has_its_tests_at_the_same_path(room: str) -> None:
    folders = {folder for places in modules_of(room).values() for folder in places}
    findings = (
        f"{folder}: no test file in tests/{folder}"
        for folder in sorted(folders)
        if not any((ROOT / "tests" / folder).glob(NAME.format("*")))
    )
    report(findings, "give each folder its tests")


@pytest.mark.parametrize("room", PRODUCT)
def test_file_with_the_name_of_a_module_stands_at_its_path(room: str) -> None:
    modules = modules_of(room)
    files = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests" / room).rglob(NAME.format("*"))]
    findings = (
        f"tests/{path}: {path.stem.removeprefix('test_')}.py is in {', '.join(map(str, places))}"
        for path in sorted(files)
        if (places := modules.get(path.stem.removeprefix("test_"))) and path.parent not in places
    )
    report(findings, "move the file to its module's path, or name its subject")
