"""The site in a browser, opened from its folder without a server: wide and narrow, light and dark, its search, its pictures.

`MAGNETAR_SCREENSHOTS` names a folder that keeps the pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.test_screens import GRAVE

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WIDTHS: Final = {"wide": 1600, "narrow": 360}
PAGES: Final = (
    "index",
    "tutorials/size_a_cache",
    "how-to/languages/java",
    "reference/commands",
    "explanation/queue_pictures",
    "tour",
)
PICTURE: Final = Path(__file__).resolve().parents[2] / "docs/images/queue/plain_fifo_size.svg"


def findings(page: Page) -> list[str]:
    """Returns the serious and critical findings of axe-core. It may not read style sheets, which a folder refuses."""
    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [
        f"{one['id']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found
        if one["impact"] in GRAVE
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_are_accessible(
    site: Path, open_page: Callable[..., Page], screenshots: Path, width: str, colours: str
) -> None:
    page = open_page(WIDTHS[width], 900, color_scheme=colours)
    wrong: list[str] = []
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        expect(page.locator("article h1")).to_be_visible()
        page.screenshot(path=screenshots / f"docs-{name.replace('/', '-')}-{width}-{colours}.png")
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > WIDTHS[width]:
            wrong.append(f"{name}: {wide} pixels wide")
        # The theme hides what is too wide, so the column at the right is looked at by itself.
        right = page.locator(".toc-drawer").bounding_box()
        if width == "wide" and right is not None and right["x"] + right["width"] > WIDTHS[width]:
            wrong.append(f"{name}: the column at the right is cut off")
        wrong += [f"{name}: {one}" for one in findings(page)]
    assert not wrong, "\n".join(wrong)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) > 600) is (colours == "light")


def test_search_finds_pages_without_a_server(
    site: Path, open_page: Callable[..., Page], screenshots: Path
) -> None:
    page = open_page()
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").fill("requeue")
    page.keyboard.press("Enter")
    found = page.locator("#search-results li a", has_text="PIP-430 in moving pictures")
    expect(found).to_be_visible()
    page.screenshot(path=screenshots / "docs-search.png")
    found.click()
    expect(page.locator("article h1")).to_contain_text("PIP-430 in moving pictures")


@pytest.mark.parametrize(("motion", "moves"), [("no-preference", True), ("reduce", False)])
def test_picture_moves_only_for_those_who_want_it(
    open_page: Callable[..., Page], motion: str, moves: bool
) -> None:
    page = open_page(reduced_motion=motion)
    page.goto(PICTURE.as_uri())
    assert (page.evaluate("document.getAnimations().length") > 0) is moves
