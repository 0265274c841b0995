"""Every view, wide and narrow, light and dark: a screenshot, no overflow, no finding of axe-core that is serious.

The views are shown on a busy broker. `MAGNETAR_SCREENSHOTS` names a folder that keeps the pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.interop.support import Admin
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WIDTHS: Final = {"wide": 1600, "narrow": 360}
VIEWS: Final = {
    "overview": ("#/overview", "svg path.line-0"),
    "topics": ("#/topics", "tbody tr"),
    "topic": ("#/topic/persistent/public/default/orders", ".strip-rows .strip-line"),
    "entry": ("#/topic/persistent/public/default/orders?entry={entry}", ".story li"),
    "namespaces": ("#/namespaces", "tbody tr"),
    "namespace": ("#/namespaces/public/default", ".names li"),
    "cache": ("#/cache", "tbody tr .bar"),
    "bookies": ("#/bookies", ".chips"),
    "settings": ("#/settings", "tbody tr"),
    "log": ("#/log", ".warnings li"),
}
"""Hash and a part that is drawn when the data have come."""
LONG: Final = ("topics", "settings")
"""Views whose picture ends at the first screen."""
GRAVE: Final = ("serious", "critical")


def findings(page: Page) -> list[str]:
    """Returns the serious and critical findings of axe-core, with the elements."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found
        if one["impact"] in GRAVE
    ]


def newest_entry(admin: Admin) -> str:
    position = admin.get("persistent/public/default/orders/lastMessageId")
    assert isinstance(position, dict)
    return f"{position['ledgerId']}:{position['entryId']}"


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_views_fit_and_are_accessible(
    busy: BrokerProcess,
    admin: Admin,
    open_page: Callable[..., Page],
    screenshots: Path,
    width: str,
    colours: str,
) -> None:
    page = open_page(WIDTHS[width], 800, color_scheme=colours)
    wrong: list[str] = []
    for name, (view, drawn) in VIEWS.items():
        page.goto(f"{busy.addresses.admin}/{view.format(entry=newest_entry(admin))}")
        expect(page.locator(f"main {drawn}").first).to_be_attached()
        picture = screenshots / f"{name}-{width}-{colours}.png"
        page.screenshot(path=picture, full_page=name not in LONG)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > WIDTHS[width]:
            wrong.append(f"{name}: {wide} pixels wide")
        wrong += [f"{name}: {one}" for one in findings(page)]
    assert not wrong, "\n".join(wrong)
    backgrounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, backgrounds[4:-1].split(","))) > 600) is (colours == "light")


def test_dialog_and_login_are_accessible(busy: BrokerProcess, page: Page) -> None:
    page.goto(f"{busy.addresses.admin}/#/topic/persistent/public/default/orders")
    page.get_by_role("button", name="Send a message").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not findings(page)


def test_wide_screen_is_used(busy: BrokerProcess, open_page: Callable[..., Page]) -> None:
    page = open_page(2560, 1300)
    page.goto(f"{busy.addresses.admin}/#/overview")
    expect(page.locator("main svg path.line-0").first).to_be_attached()
    assert page.locator("main").bounding_box()["width"] > 2000  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") == 2560


def test_nothing_moves_for_users_who_ask_for_it(busy: BrokerProcess, open_page: Callable[..., Page]) -> None:
    for wish, moves in (("reduce", False), ("no-preference", True)):
        page = open_page(reduced_motion=wish)
        page.goto(f"{busy.addresses.admin}/#/topic/persistent/public/default/orders")
        page.get_by_role("button", name="Send a message").click()
        page.get_by_label("Payload").fill('{"id": 1, "item": "a", "price": 1.0}')
        page.get_by_role("button", name="Send", exact=True).click()
        notice = page.locator(".notice")
        expect(notice).to_be_visible()
        assert (notice.evaluate("one => getComputedStyle(one).animationName") != "none") is moves


def test_colours_follow_the_switch(busy: BrokerProcess, page: Page) -> None:
    page.goto(f"{busy.addresses.admin}/#/log")
    page.get_by_label("Colours").select_option("dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_label("Colours").select_option("light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
