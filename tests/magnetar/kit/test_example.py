"""The example application's tests pass with the plugin, as its page says."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "orders"
COUNT = 21


@pytest.mark.slow
def test_example_application_passes_its_tests() -> None:
    named = [] if "magnetar" in entry_points(group="pytest11").names else ["-p", "magnetar.kit.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *named, "-p", "no:cacheprovider", str(EXAMPLE)]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert f"{COUNT} passed" in done.stdout, done.stdout[-8000:]
