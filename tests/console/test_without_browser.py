"""The tests of pages on a machine without the packages of the browser: they are skipped with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.browser import PACKAGES, REASON

ROOT: Final = Path(__file__).resolve().parents[2]
COLLECT: Final = """
import sys, pytest
sys.modules[sys.argv[1]] = None  # type: ignore[assignment]
sys.exit(pytest.main(["--collect-only", "-q", "-rs", "-p", "no:xdist", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_of_pages_are_skipped_at_collection_without_a_package(package: str) -> None:
    folders = ("tests/console", "tests/docs_site")
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, package, *folders, "-m", ""],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert REASON in done.stdout
    assert "test_files.py" in done.stdout
    assert "test_flows.py::" not in done.stdout
