"""The pages' order, their words about what is missing, and their fit on a phone, on a busy broker."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PHONES: Final = (360, 390)
EDGES: Final = """one => {
    const box = one.getBoundingClientRect()
    return [box.left, box.right, one.scrollWidth - one.clientWidth]
}"""
"""Left and right edge of a part, and the pixels of its content that are hidden."""
CUT_OFF_VALUES: Final = """table => [...table.querySelectorAll(".value-of")]
    .filter((one) => one.scrollWidth > one.clientWidth || one.getBoundingClientRect().right > innerWidth)
    .map((one) => one.textContent)"""
"""Values of settings that are wider than their cell or the screen."""
ORDERS: Final = "topic/persistent/public/default/orders"


@pytest.fixture
def show(busy: BrokerProcess, open_page: Callable[..., Page]) -> Callable[[str, int], Page]:
    def shown(view: str, width: int) -> Page:
        page = open_page(width, 800)
        page.goto(f"{busy.addresses.admin}/#/{view}")
        return page

    return shown


def assert_whole(part: Locator, width: int) -> None:
    """Fails for a part that reaches beyond the screen, or whose content scrolls sideways or is cut off."""
    expect(part).to_be_visible()
    # In one call: the page renders itself anew each second, and a part between two calls may be gone.
    left, right, hidden = part.evaluate(EDGES)
    assert left >= 0
    assert right <= width
    assert hidden <= 0


@pytest.mark.parametrize("width", PHONES)
def test_buttons_of_a_topic_share_a_line_on_a_phone(show: Callable[[str, int], Page], width: int) -> None:
    page = show(ORDERS, width)
    boxes = []
    for name in ("Send a message", "Delete topic"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_visible()
        boxes.append(button.bounding_box())
    title = page.get_by_role("heading", level=1).bounding_box()
    send, delete = boxes
    assert send is not None
    assert delete is not None
    assert title is not None
    assert send["y"] == delete["y"] > title["y"]
    assert delete["x"] + delete["width"] <= width


@pytest.mark.parametrize("width", PHONES)
def test_cards_of_a_phone_show_whole_values(show: Callable[[str, int], Page], width: int) -> None:
    page = show("cache", width)
    working_sets = page.get_by_role("region", name="Working sets of subscriptions").last
    expect(working_sets.get_by_text("slow-report")).to_be_visible()
    assert_whole(working_sets, width)
    for cell in working_sets.locator("td, .amount").all():
        assert_whole(cell, width)
    page = show("settings", width)
    settings = page.locator("main .scroll")
    expect(settings.locator("tbody tr").first).to_be_visible()
    assert_whole(settings, width)
    assert settings.evaluate(CUT_OFF_VALUES) == []
    page = show(ORDERS, width)
    for name in ("Subscriptions", "Consumers", "Producers"):
        part = page.get_by_role("region", name=name).locator(".scroll")
        expect(part.locator("tbody tr").first).to_be_visible()
        assert_whole(part, width)


def test_cache_page_begins_with_the_working_sets(show: Callable[[str, int], Page]) -> None:
    page = show("cache", 1440)
    expect(page.get_by_text("slow-report")).to_be_visible()
    titles = page.locator("main h2").all_inner_texts()
    assert titles[0] == "Working sets of subscriptions"
    places = [title.bounding_box() for title in page.locator("main h2").all()]
    assert min(place["y"] for place in places if place is not None) == places[0]["y"]  # type: ignore[index]


def test_cache_page_has_no_empty_buckets(busy: BrokerProcess, open_page: Callable[..., Page]) -> None:
    page = open_page(1440, 800)
    page.route("**/console/cache*", _with_two_ages)
    page.goto(f"{busy.addresses.admin}/#/cache")
    ages = page.get_by_role("region", name="Entries of the removal queue by age").locator("tbody tr")
    expect(ages).to_have_text([re.compile("^under .*7"), re.compile("^over .*3")])
    reads = page.get_by_role("region", name="Cached entries by expected reads").locator("tbody tr")
    expect(reads).to_have_text([re.compile("^2.*5")])


def _with_two_ages(route: Route) -> None:
    answer = route.fetch()
    found = answer.json()
    queue = found["queue"]
    queue["entries"] = [7, *[0] * (len(queue["entries"]) - 2), 3]
    found["expectedReads"] = {name: 5 if name == "2" else 0 for name in found["expectedReads"]}
    route.fulfill(response=answer, json=found)


@pytest.mark.one_broker("asks for the bookie inside the process")
def test_embedded_bookie_claims_no_port(show: Callable[[str, int], Page]) -> None:
    page = show("bookies", 1440)
    expect(page.get_by_role("heading", name="Embedded bookie")).to_be_visible()
    assert page.locator("main h2").all_inner_texts() == ["Embedded bookie"]
    expect(page.get_by_text("it has no port of its own")).to_be_visible()


def test_page_says_that_values_stand_still(busy: BrokerProcess, open_page: Callable[..., Page]) -> None:
    page = open_page(1440, 800)
    page.clock.install()
    page.goto(f"{busy.addresses.admin}/#/overview")
    connection = page.locator(".connection")
    page.clock.run_for(2_000)
    expect(connection).to_have_text("live")
    expect(page.locator(".tile .big").first).to_contain_text("msg/s")
    os.kill(busy.pid, signal.SIGSTOP)
    try:
        page.clock.run_for(12_000)
        expect(connection).to_have_text(re.compile(r"^values stand still for 1\d s$"))
    finally:
        os.kill(busy.pid, signal.SIGCONT)
    page.clock.resume()
    expect(connection).to_have_text("live")
