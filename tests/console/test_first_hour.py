"""Every page in the first minute of a broker, after five minutes and after an hour, wide and on a phone.

The broker's clock is advanced, so its charts have a gap: the console samples by the machine's time. `MAGNETAR_SCREENSHOTS`
names a folder that keeps the pictures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.traffic import busy_broker
from tests.interop.support import Clocks
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

WIDTHS: Final = {"wide": 1440, "narrow": 390}
MOMENTS: Final = {"first minute": 0, "five minutes": 5, "an hour": 55}
"""Minutes by which the broker's clock is advanced before."""
VIEWS: Final = {
    "overview": "main svg path.line-0",
    "topics": "tbody tr",
    "topic/persistent/public/default/orders": ".strip-rows .strip-line",
    "namespaces": "tbody tr",
    "namespaces/public/default": ".names li",
    "cache": "tbody tr .bar",
    "bookies": ".chips",
    "settings": "tbody tr",
    "log": "main h1",
}
"""Pages, each with a part that is drawn when its data have come."""
LONG: Final = ("topics", "settings", "namespaces/public/default")
"""Pages whose picture ends at the first screen."""
NO_VALUE: Final = re.compile(
    r"\b(NaN|undefined|null|Infinity|Invalid Date)\b|\[object|-\d+(\.\d+)? (s|ms|min|h|d|B|KiB)\b"
)
"""Texts that a value which is missing or wrong leaves on a page."""
CUT_OFF: Final = """() => [...document.querySelectorAll("main *, header *")].filter((one) => {
    const style = getComputedStyle(one);
    if (style.clipPath !== "none" || style.display === "inline" || style.overflowX === "auto") return false;
    const tells = one.childElementCount === 0 && one.textContent.trim();
    return (style.overflowX === "hidden" || tells) && one.scrollWidth > one.clientWidth + 1;
}).map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 60)}`)"""
"""Elements whose text is wider than they are."""


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with traffic whose clock can be advanced."""
    with busy_broker(tmp_path_factory.mktemp("young"), test_faults=True) as broker:
        yield broker


def test_pages_are_whole_in_the_first_hour(
    young: BrokerProcess, open_page: Callable[..., Page], screenshots: Path
) -> None:
    admin = young.addresses.admin
    pages = {width: open_page(pixels, 900) for width, pixels in WIDTHS.items()}
    wrong: list[str] = []
    for moment, minutes in MOMENTS.items():
        if minutes:
            Clocks(young).advance(minutes=minutes)
        for width, page in pages.items():
            for view, drawn in VIEWS.items():
                page.goto(f"{admin}/#/{view}")
                expect(page.locator(drawn).first).to_be_attached()
                expect(page.locator(".connection")).to_have_text("live")
                # Rates come with the second values.
                expect(page.locator(".tile .big").filter(has_text="\u2013")).to_have_count(0)
                name = f"{moment}-{view.replace('/', '_')}-{width}".replace(" ", "_")
                page.screenshot(path=screenshots / f"{name}.png", full_page=view not in LONG)
                where = f"{view}, {width}, {moment}"
                wide = page.evaluate("document.documentElement.scrollWidth")
                wrong += [f"{where}: {wide} pixels wide"] if wide > WIDTHS[width] else []
                wrong += [f"{where}: cut off: {one}" for one in page.evaluate(CUT_OFF)]
                wrong += [
                    f"{where}: {found[0]}" for found in NO_VALUE.finditer(page.locator("main").inner_text())
                ]
    assert not wrong, "\n".join(wrong)
