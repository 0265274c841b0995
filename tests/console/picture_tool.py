"""Takes pictures of all pages of a console: `python -m tests.console.picture_tool http://localhost:8080 FOLDER NAME`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.console.conftest import BROWSERS

PAGES: Final = (
    "overview",
    "topics",
    "topic/persistent/public/default/orders",
    "namespaces",
    "cache",
    "bookies",
    "settings",
    "log",
)
WIDTHS: Final = {"wide": 1440, "narrow": 390}
"""Widths of the window in pixels."""
SETTLE_MS: Final = 3_000
"""Time for the first values of a page to arrive."""


def take(admin: str, folder: Path, name: str) -> None:
    """Writes a picture of each page in both widths; `name` tells the moment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for width, pixels in WIDTHS.items():
            page = browser.new_context(viewport={"width": pixels, "height": 900}).new_page()
            for view in PAGES:
                page.goto(f"{admin}/#/{view}")
                page.wait_for_timeout(SETTLE_MS)
                view_name = view.partition("/")[0]
                picture = folder / f"{name}-{view_name}-{width}.png"
                page.screenshot(path=picture, full_page=view_name != "settings")
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
