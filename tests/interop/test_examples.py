"""The tests in `examples/` of the other languages, run as a reader of their pages would run them.

Each starts a broker of its own by the command that `MAGNETAR` names. They need toolchains and packages, so they run with
`make test-slow` alone; a toolchain or packages that are missing skip the test with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.interop.programs import cargo_settings, fetch, need, run

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
MAGNETAR: Final = Path(sys.executable).parent / "magnetar"
RUN_S: Final = 1500

# Building the Rust client takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(2 * RUN_S)]


def passed_tests(
    folder: Path, command: Sequence[str], passed: str, settings: Mapping[str, str] | None = None
) -> set[str]:
    """Runs the tests of a copied example, and returns the names that `passed` finds in the output."""
    environment = {**(settings or os.environ), "MAGNETAR": str(MAGNETAR)}
    ended = run(command, RUN_S, folder, environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return set(re.findall(passed, ended.stdout, re.M))


def copy_of(language: str, tmp_path: Path) -> Path:
    """Tools write beside their sources, so they get a copy."""
    return Path(shutil.copytree(EXAMPLES / language, tmp_path / language))


def test_go_example_passes(tmp_path: Path) -> None:
    need("go")
    folder = copy_of("go", tmp_path)
    fetch(["go", "mod", "download"], folder)
    assert passed_tests(folder, ["go", "test", "-v", "-count=1"], r"^--- PASS: (\w+)") == {
        "TestOrderArrivesAsItWasSent",
        "TestJSONOrderIsReadAsAStruct",
        "TestProducerOfAnotherSchemaIsRefused",
        "TestReminderComesAfterAnHour",
        "TestProducerSurvivesALostReceipt",
        "TestOrdersExpireAfterAWeek",
    }


def test_java_example_passes(tmp_path: Path) -> None:
    need("java")
    need("mvn")
    folder = copy_of("java", tmp_path)
    fetch(["mvn", "-q", "-B", "test-compile", "surefire:help"], folder)
    maven = ["mvn", "-B", "test"]
    assert passed_tests(
        folder, maven, r"^\[INFO\] Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0$"
    ) == {"6"}


def test_node_example_passes(tmp_path: Path) -> None:
    need("node")
    need("npm")
    folder = copy_of("node", tmp_path)
    fetch(["npm", "install", "--no-audit", "--no-fund"], folder)
    node = ["node", "--test", "--test-reporter=tap"]
    assert passed_tests(folder, node, r"^ok \d+ - (.+)$") == {
        "order arrives as it was sent",
        "schema of another shape is refused",
        "reminder comes after an hour",
        "order survives a full disk",
        "orders expire after a week",
    }


def test_rust_example_passes(tmp_path: Path) -> None:
    need("cargo")
    folder = copy_of("rust", tmp_path)
    fetch(["cargo", "fetch"], folder)
    assert passed_tests(folder, ["cargo", "test"], r"^test (\w+) \.\.\. ok$", cargo_settings(folder)) == {
        "order_arrives_as_it_was_sent",
        "json_order_is_read_as_a_struct",
        "producer_of_another_schema_is_refused",
        "reminder_comes_after_an_hour",
        "producer_starts_while_the_broker_is_not_ready",
        "orders_expire_after_a_week",
    }
    shutil.rmtree(folder)
