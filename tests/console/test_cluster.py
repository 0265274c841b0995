"""The page of the cluster in a browser: three brokers on one store, their bundles, and why bundles moved."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from magnetar.commands.top_command import main as top
from tests.console.test_screens import WIDTHS, findings
from tests.interop.support import Admin, connect, numbered, publish, wait_until
from tests.interop.test_served_metadata import Server
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    server = Server(tmp_path)
    server.start()
    found: list[BrokerProcess] = []
    try:
        with BookieProcesses(tmp_path / "bookies", 1) as bookies:
            for number in range(3):
                folder = tmp_path / f"broker-{number}"
                folder.mkdir()
                settings = {
                    **ensemble_settings(bookies.addresses),
                    "metadataStoreUrl": server.url,
                    "metadataStoreSessionTimeoutMillis": "6000",
                    # Reports of loads.
                    "loadBalancerEnabled": "true",
                    "brokerServicePort": str(free_port()),
                    "webServicePort": str(free_port()),
                }
                found.append(BrokerProcess(folder, settings))
                found[-1].start()
            yield found
            for broker in found:
                broker.kill()
    finally:
        server.end(signal.SIGKILL)


def name_of(broker: BrokerProcess) -> str:
    return broker.addresses.admin.removeprefix("http://")


def test_page_of_any_broker_shows_a_topic_and_changes_it(
    brokers: list[BrokerProcess], open_page: Callable[..., Page]
) -> None:
    """A browser does not follow a request to another broker, so the asked broker asks the owner."""
    admin = Admin(brokers[0].addresses.admin)
    client = connect(brokers[0].addresses.pulsar)
    client.subscribe("t", "s").close()
    publish(client.create_producer("t", batching_enabled=False), numbered(10))
    owner = next(one for one in brokers if one.addresses.admin == admin.owner_url("t"))
    other = next(one for one in brokers if one is not owner)
    page = open_page()
    page.goto(f"{other.addresses.admin}/#/topic/persistent/public/default/t")
    expect(page.get_by_text(f"Broker {name_of(owner)} has this topic")).to_be_visible()
    expect(page.locator(".tile", has_text="Backlog")).to_contain_text("10")
    page.get_by_role("group", name="Actions on s").get_by_role("button", name="Skip").click()
    page.get_by_label("Number of entries").fill("4")
    page.get_by_role("dialog").get_by_role("button", name="Skip", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert admin.subscription("t", "s")["msgBacklog"] == 6
    expect(page.locator(".tile", has_text="Backlog")).to_contain_text("6")
    page.get_by_role("link", name="Its page").click()
    expect(page.locator(".connection")).to_have_text("live")
    expect(page.locator(".tile", has_text="Backlog")).to_contain_text("6")
    expect(page.get_by_text("has this topic")).to_be_hidden()
    client.close()


def test_page_shows_brokers_bundles_and_why_they_moved(
    brokers: list[BrokerProcess],
    open_page: Callable[..., Page],
    screenshots: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = connect(
        "pulsar://" + ",".join(one.addresses.pulsar.removeprefix("pulsar://") for one in brokers)
    )
    topics = [f"t{number}" for number in range(12)]
    producers = [client.create_producer(topic, batching_enabled=False) for topic in topics]
    page = open_page()
    page.goto(f"{brokers[0].addresses.admin}/#/cluster")
    table = page.get_by_role("region", name="Brokers", exact=True)
    for broker in brokers:
        expect(table).to_contain_text(name_of(broker))
    expect(page.get_by_role("status").filter(has_text="3 brokers own 4 bundles")).to_be_visible()
    moves = page.get_by_role("region", name="Last moves", exact=True).last
    expect(moves.locator("tbody tr")).to_have_count(4)
    bundle = "0x00000000_0x40000000"
    Admin(brokers[0].addresses.admin).put(f"namespaces/public/default/{bundle}/unload")
    expect(moves).to_contain_text("it was unloaded")
    for producer in producers:
        publish(producer, numbered(10))
    expect(moves).to_contain_text(re.compile("had given it up: it was unloaded"))
    brokers[2].kill()
    for producer in producers:
        publish(producer, numbered(10, 10))
    expect(moves).to_contain_text(f"{name_of(brokers[2])} had it, and was gone")
    expect(page.get_by_role("status").filter(has_text="2 brokers own 4 bundles")).to_be_visible()
    page.locator("details summary").first.click()

    def shows_rates() -> bool:
        for producer in producers:
            publish(producer, numbered(100))
        return "0" not in rates.all_inner_texts()

    rates = table.locator("tbody tr td:nth-child(4)")
    wait_until(shows_rates, "messages a second of both brokers")
    for width, pixels in WIDTHS.items():
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.set_viewport_size({"width": pixels, "height": 800})
            page.screenshot(path=screenshots / f"cluster-{width}-{colours}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= pixels
            assert not findings(page)
    expect(page.locator("details").first).to_have_attribute("open", "")
    client.close()
    assert top(["--cluster", "--once", "--admin-url", brokers[0].addresses.admin]) == 0
    text = capsys.readouterr().out
    assert f"{name_of(brokers[2])} had it, and was gone" in text
    assert re.search(
        rf"^{re.escape(name_of(brokers[0]))} +bundles +\d+ +messages .+ \(now\) +leads, asked", text, re.M
    )
