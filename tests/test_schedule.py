"""The schedule of several workers names existing files, and each port goes to one worker alone."""

from __future__ import annotations

import ast
import contextlib
import itertools
import socket
from pathlib import Path

import pytest

from tests.support.ports import FIRST, SPAN, free_port
from tests.support.schedule import GROUPS, LONG, group_of, place_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", sorted({*itertools.chain(LONG, *GROUPS.values())} - {*GROUPS}))
def test_schedule_names_files_and_folders_that_exist(name: str) -> None:
    assert (ROOT / name).is_dir() == name.endswith("/")
    assert (ROOT / name).exists()


def test_tests_with_spark_are_three_groups() -> None:
    asking = [path for path in ROOT.glob("tests/**/test_*.py") if asks_for_spark(path)]
    assert asking
    assert {group_of(f"{path.relative_to(ROOT)}::test") for path in asking} == {
        "spark jobs",
        "spark source",
        "spark peers",
    }


def asks_for_spark(path: Path) -> bool:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return any(
        one.name.startswith("test_") and "spark" in {argument.arg for argument in one.args.args}
        for one in functions
    )


def test_long_tests_begin() -> None:
    files = [
        "tests/foundation/settings/test_load.py",
        "tests/sim/test_sim.py",
        "tests/pyspark_pulsar/writing/test_write.py",
    ]
    assert sorted(files, key=lambda file: place_of(f"{file}::test")) == files[::-1]


def test_free_port_gives_each_port_once_and_below_the_range_of_the_system() -> None:
    ports = [free_port() for _ in range(50)]
    assert len({*ports}) == 50
    assert all(FIRST <= port < FIRST + 10 * SPAN for port in ports)


def test_free_port_passes_over_a_port_in_use() -> None:
    following = free_port() + 1
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # Then somebody else has it.
            other.bind(("127.0.0.1", following))
        assert free_port() != following
