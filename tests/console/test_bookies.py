"""The page of bookies over TCP in a browser: figures of two processes, one that is killed, one without an HTTP port."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.test_screens import WIDTHS, findings
from tests.interop.support import connect, numbered, publish
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.vectors.broker_process import BrokerProcess

DISKS: Final = re.compile(r"^all ledger disks.*[\d.]+ .?i?B free of [\d.]+ .?i?B$")

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieProcesses]:
    with BookieProcesses(tmp_path / "bookies", 2) as processes:
        yield processes


@pytest.fixture
def broker(tmp_path: Path, bookies: BookieProcesses) -> Iterator[BrokerProcess]:
    ports = [bookie.http.rpartition(":")[2] for bookie in bookies.bookies]
    settings = {**ensemble_settings(bookies.addresses), "bookieHttpPort": ",".join(ports)}
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker", settings) as running:
        yield running


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def test_bookies_over_tcp_show_their_figures_until_they_are_killed(
    bookies: BookieProcesses, broker: BrokerProcess, open_page: Callable[..., Page], screenshots: Path
) -> None:
    first, second = bookies.bookies
    client = connect(broker.addresses.pulsar)
    producer = client.create_producer("t", batching_enabled=False)
    page = open_page()
    page.goto(f"{broker.addresses.admin}/#/bookies")
    # The broker measures its own requests from the first look on.
    expect(card(page, first.address)).to_contain_text("none in a minute")
    publish(producer, numbered(200))
    for one in (first, second):
        shown = card(page, one.address)
        times = r" from here, 50 and 99\s%\s*[\d.]+ [mµ]?s, [\d.]+ [mµ]?s"
        expect(shown).to_contain_text(re.compile(rf"write{times}"))
        expect(shown).to_contain_text(
            re.compile(r"newest journal syncs, 50 and 99\s%\s*[\d.]+ [mµ]?s, [\d.]+")
        )
        expect(shown).to_contain_text(re.compile(r"evicted before first use since the start *0 entries"))
        expect(shown).to_contain_text(re.compile(r"ledger directories *1 of 1 writable"))
        expect(shown.get_by_role("list", name="Disks")).to_contain_text(DISKS)
        expect(shown.locator(".chip.good")).to_have_text("writable")
    for width, pixels in WIDTHS.items():
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.set_viewport_size({"width": pixels, "height": 800})
            page.screenshot(path=screenshots / f"bookies-tcp-{width}-{colours}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= pixels
            assert not findings(page)
    first.kill()
    expect(card(page, first.address).locator(".chip.bad")).to_have_text("not connected")
    expect(card(page, first.address)).to_contain_text("The bookie did not tell its disks")
    expect(card(page, second.address).locator(".chip.good")).to_have_text("writable")
    page.screenshot(path=screenshots / "bookies-killed.png", full_page=True)
    client.close()


def test_page_says_what_to_set_where_the_http_port_is_not_known(
    tmp_path: Path, bookies: BookieProcesses, page: Page
) -> None:
    (tmp_path / "plain").mkdir()
    with BrokerProcess(tmp_path / "plain", ensemble_settings(bookies.addresses)) as broker:
        page.goto(f"{broker.addresses.admin}/#/bookies")
        shown = card(page, bookies.addresses[0])
        expect(shown).to_contain_text("Set bookieHttpPort in broker.conf")
        expect(shown.get_by_role("list", name="Disks")).to_contain_text(DISKS)
        page.goto("about:blank")
