"""Leaves out tests of pages in a browser on a machine without the packages for it.

The modules import Playwright at their head, so without it their collection would fail, and with it a whole run of tests.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = ("playwright", "axe_playwright_python")
REASON: Final = "needs playwright and axe-playwright-python, which `pip install -e .[dev]` brings"


class WithoutBrowser(pytest.Module):
    """A module that is not imported and counts as skipped."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(REASON)


def module_without_browser(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Returns a skipped module for one that needs a package which is missing; None for all others."""
    if all(find_spec(name) is not None for name in PACKAGES):
        return None
    if not any(name in path.read_text(encoding="utf-8") for name in PACKAGES):
        return None
    module: pytest.Module = WithoutBrowser.from_parent(parent, path=path)
    return module
