"""The site, built once, and the browser of the console's tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.console.conftest import (
    browser,
    open_page,
    pytest_pycollect_makemodule,
    screenshots,
    watch,
)

__all__ = ["browser", "open_page", "pytest_pycollect_makemodule", "screenshots", "site", "watch"]

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "docs" / "site" / "build.py"
BUILD_S: Final = 600


def run_build(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BUILD), *words], capture_output=True, text=True, timeout=BUILD_S, check=False
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    built = run_build(str(folder))
    assert built.returncode == 0, built.stderr
    assert built.stdout == f"open {folder / 'html' / 'index.html'}\n"
    yield folder / "html"
    shutil.rmtree(folder)
