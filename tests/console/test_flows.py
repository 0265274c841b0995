"""Every flow of the console on a busy broker, clicked in a browser; the admin API says if it had its effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pulsar
import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Watch
from tests.console.test_screens import newest_entry
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.support.raw_http import send
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

DEFAULT: Final = "persistent/public/default"


@pytest.fixture
def client(busy: BrokerProcess) -> Iterator[pulsar.Client]:
    found = connect(busy.addresses.pulsar)
    yield found
    found.close()


@pytest.fixture
def show(busy: BrokerProcess, page: Page) -> Callable[[str], Page]:
    def shown(view: str) -> Page:
        page.goto(f"{busy.addresses.admin}/#/{view}")
        return page

    return shown


@pytest.fixture
def backlog(client: pulsar.Client, topic: str) -> str:
    """A topic with ten messages that its subscription `s` has not acknowledged."""
    client.subscribe(topic, "s").close()
    publish(client.create_producer(topic, batching_enabled=False), numbered(10))
    return topic


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "-", request.node.name)


def action(page: Page, name: str) -> None:
    """Clicks an action on the subscription `s`."""
    page.get_by_role("group", name="Actions on s").get_by_role("button", name=name).click()


def confirm(page: Page, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_overview_shows_rates_and_follows_them(show: Callable[[str], Page]) -> None:
    page = show("overview")
    tile = page.locator(".tile", has_text="Published").locator(".big")
    expect(tile).to_have_text(re.compile(r"^[1-9].* msg/s$"))
    expect(page.locator(".connection")).to_have_text("live")
    first = page.get_by_role("img", name=re.compile("^Messages"))
    expect(first).to_have_attribute("aria-label", re.compile(r"published: now [\d.]+ (k )?msg/s, lowest"))
    page.get_by_role("button", name="Last 5 minutes").click()
    expect(page.get_by_role("button", name="Last 5 minutes")).to_have_attribute("aria-pressed", "true")
    page.locator("figure", has_text="Messages").get_by_text("Table of these values").click()
    expect(page.locator("figure", has_text="Messages").locator("tbody tr").first).to_be_visible()


@pytest.mark.one_broker("asks for the bookie inside the process")
def test_overview_shows_the_journal(show: Callable[[str], Page]) -> None:
    expect(show("overview").locator(".tile", has_text="Storage")).to_contain_text("last journal writes")


def test_topics_are_searched_sorted_and_paged(show: Callable[[str], Page]) -> None:
    page = show("topics")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(page.get_by_text("hit ratios since the topics were opened")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51 to 100")).to_be_visible()
    page.get_by_role("button", name="Backlog").click()
    expect(page.get_by_role("columnheader", name="Backlog")).to_have_attribute("aria-sort", "descending")
    expect(rows.first.get_by_role("rowheader")).to_contain_text("orders")
    page.get_by_role("searchbox").fill("QUIET-01")
    expect(rows).to_have_count(10)
    page.go_back()
    expect(rows).to_have_count(50)
    page.get_by_role("searchbox").fill("quiet-077")
    page.get_by_role("link", name="quiet-077").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("quiet-077")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_hidden_tab_has_no_stream(admin: Admin, show: Callable[[str], Page]) -> None:
    """A browser has six connections for a server, and streams in hidden tabs would take them all."""
    page = show("overview")
    connection = page.locator(".connection")
    expect(connection).to_have_text("live")
    page.evaluate(_SHOW, False)
    wait_until(lambda: _pages(admin) == 0, "the stream has ended")
    page.evaluate(_SHOW, True)
    expect(connection).to_have_text("live")
    assert _pages(admin) == 1


_SHOW: Final = """shown => {
    Object.defineProperty(document, "hidden", { value: !shown, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Tells the page that its tab is shown or hidden: a browser without a window hides none."""


def _pages(admin: Admin) -> object:
    session = admin.get("magnetar/console/session")
    assert isinstance(session, dict)
    return session["pages"]


def test_title_keeps_the_focus_when_the_data_of_the_topic_come(show: Callable[[str], Page]) -> None:
    page = show("topics?search=quiet-077")
    page.get_by_role("link", name="quiet-077").click()
    expect(page.get_by_role("heading", name="Subscriptions")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_non_persistent_topic_shows_its_subscriptions(
    client: pulsar.Client, show: Callable[[str], Page]
) -> None:
    consumer = client.subscribe("non-persistent://public/default/weather", "forecast")
    page = show("topic/non-persistent/public/default/weather")
    expect(page.get_by_role("rowheader", name="forecast")).to_be_visible()
    expect(page.get_by_text("The topic has no entries.")).to_be_visible()
    consumer.close()


def test_messages_of_ledgers_that_are_not_listed_are_not_called_trimmed(
    client: pulsar.Client, show: Callable[[str], Page]
) -> None:
    client.subscribe("long", "s").close()
    producer = client.create_producer("long", batching_enabled=False)
    publish(producer, numbered(900))
    page = show(f"topic/{DEFAULT}/long")
    expect(page.locator(".strip")).to_contain_text("of 900 entries are shown")
    # The answer as it is for a topic of more ledgers than are listed.
    page.route("**/console/topics/persistent/public/default/long", _without_first_ledger)
    expect(page.locator(".strip")).to_contain_text("older ledgers not shown")
    expect(page.locator(".strip")).not_to_contain_text("trimmed.")
    expect(page.locator(".strip")).to_contain_text("Entries to read or to acknowledge are there for s.")
    expect(
        page.get_by_role("img", name=re.compile("^s: reads in ledgers before those shown"))
    ).to_be_attached()


def _without_first_ledger(route: Route) -> None:
    answer = route.fetch()
    found = answer.json()
    first = found["ledgers"].pop(0)
    last_before = {"ledgerId": first["ledgerId"], "entryId": first["lastEntry"]}
    route.fulfill(response=answer, json={**found, "ledgersMore": 2, "lastBefore": last_before})


def test_strip_tells_why_an_entry_is_cached_by_click_and_by_key(show: Callable[[str], Page]) -> None:
    page = show(f"topic/{DEFAULT}/orders")
    slider = page.get_by_role("slider", name="Entry of the topic")
    expect(page.locator(".strip-rows .strip-line")).to_have_count(4)
    slider.click(position={"x": 3, "y": 10})
    expect(page.get_by_role("heading", name=re.compile(r"^Entry \d+:\d+$"))).to_be_visible()
    expect(page.locator(".conclusion")).not_to_be_empty()
    first = page.url
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuenow", "0")
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuenow", "1")
    slider.press("Enter")
    expect(page).not_to_have_url(first)
    expect(page.get_by_role("heading", name=re.compile(r"^Entry \d+:1$"))).to_be_visible()
    expect(page.get_by_label("Decoded value")).to_contain_text('"item": "item 1"')
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator(".readout")).to_be_visible()
    page.get_by_role("button", name="All").click()


def test_entry_that_is_newer_than_the_strip_is_named_at_once(
    watch: Watch, show: Callable[[str], Page]
) -> None:
    # The ledger does not exist, so the cache has no story of the entry.
    watch.expected.add(404)
    page = show("topic/persistent/public/default/orders")
    expect(page.locator(".strip-rows .strip-line").first).to_be_attached()
    # The first text about an entry: the next values of the topic draw the strip, and its text, again.
    text = page.evaluate(
        """() => new Promise((done) => {
            const readout = document.querySelector(".readout");
            const look = () => readout.textContent.startsWith("Entry") && done(readout.textContent);
            new MutationObserver(look).observe(readout, { childList: true, characterData: true, subtree: true });
            location.hash += "?entry=999999:7";
        })"""
    )
    assert text == "Entry 999999:7, not drawn yet"


def test_trimmed_part_of_a_log_is_counted(
    admin: Admin, client: pulsar.Client, topic: str, show: Callable[[str], Page]
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, numbered(1000))
    # Nothing keeps the two full ledgers of 400 entries.
    wait_until(lambda: is_trimmed(admin, topic), "a trimmed ledger")
    page = show(f"topic/{DEFAULT}/{topic}")
    expect(page.get_by_text("800 older messages were trimmed.")).to_be_visible()
    expect(page.locator(".strip.trimmed")).to_be_visible()


def is_trimmed(admin: Admin, topic: str) -> bool:
    admin.post(f"{DEFAULT}/{topic}/trim")
    shown = admin.get(f"{DEFAULT}/{topic}/internalStats")
    assert isinstance(shown, dict)
    return shown["numberOfEntries"] == 200


def test_topic_shows_cursors_clients_and_policies(admin: Admin, show: Callable[[str], Page]) -> None:
    admin.post(f"{DEFAULT}/orders/messageTTL?messageTTL=86400")
    page = show(f"topic/{DEFAULT}/orders")
    billing = page.get_by_role("img", name=re.compile("^billing: .* delivered and not acknowledged"))
    expect(billing).to_be_attached()
    expect(page.get_by_role("region", name="Consumers").get_by_role("rowheader")).to_have_count(3)
    expect(page.get_by_role("region", name="Producers").get_by_role("rowheader")).to_have_count(1)
    rows = page.get_by_role("region", name="Policies that hold").get_by_role("row")
    expect(rows.filter(has_text="86400").filter(has_text="topic")).to_be_visible()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Show those of the broker").click()
    expect(rows.filter(has_text="retention").filter(has_text="broker")).to_be_visible()
    shipping = page.get_by_role("region", name="Subscriptions").get_by_role(
        "row", name=re.compile("shipping")
    )
    expect(shipping).to_contain_text(re.compile(r"[1-9][\d.]* msg/s"))
    expect(page.get_by_text("since the subscription was opened")).to_be_visible()


def test_message_is_sent_and_peeked_by_its_schema(
    admin: Admin, client: pulsar.Client, show: Callable[[str], Page]
) -> None:
    consumer = client.subscribe("orders", "reader-of-console")
    page = show(f"topic/{DEFAULT}/orders")
    page.get_by_role("button", name="Send a message").click()
    page.get_by_label("Payload").fill('{"id": 7, "item": "from the console", "price": 2.5}')
    page.get_by_label("Key").fill("seven")
    page.get_by_label("Properties").fill("source=console\nplace=here")
    confirm(page, "Send")
    expect(page.locator(".notice.success")).to_contain_text(re.compile(r"Sent \d+:\d+"))
    while (message := consumer.receive(60_000)).partition_key() != "seven":
        pass
    assert b"from the console" in message.data()
    assert message.properties() == {"source": "console", "place": "here"}
    consumer.unsubscribe()
    page.get_by_role("group", name="Actions on audit-trail").get_by_role("button", name="Peek").click()
    expect(page.get_by_role("heading", name="Next messages of audit-trail")).to_be_focused()
    expect(page.locator(".message").first).to_contain_text('"item": "item 0"')
    expect(page.locator(".message")).to_have_count(10)


def test_refused_message_shows_the_reason(watch: Watch, show: Callable[[str], Page]) -> None:
    watch.expected.add(422)
    watch.expected.add(400)
    page = show(f"topic/{DEFAULT}/orders")
    page.get_by_role("button", name="Send a message").click()
    page.get_by_label("Payload").fill("no JSON")
    page.get_by_role("dialog").get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_messages_are_skipped(admin: Admin, backlog: str, show: Callable[[str], Page]) -> None:
    page = show(f"topic/{DEFAULT}/{backlog}")
    action(page, "Skip")
    page.get_by_label("Number of entries").fill("3")
    confirm(page, "Skip")
    # The server does not tell how many were left, so neither does the page.
    expect(page.locator(".notice.success")).to_contain_text("Skipped up to 3 entries of s")
    assert admin.subscription(backlog, "s")["msgBacklog"] == 7
    action(page, "Skip")
    page.get_by_label("Which").select_option("all")
    confirm(page, "Skip")
    assert admin.subscription(backlog, "s")["msgBacklog"] == 0


def test_subscription_is_reset(
    admin: Admin, client: pulsar.Client, backlog: str, show: Callable[[str], Page]
) -> None:
    admin.post(f"{DEFAULT}/{backlog}/subscription/s/skip_all")
    page = show(f"topic/{DEFAULT}/{backlog}")
    action(page, "Reset")
    confirm(page, "Reset")
    assert admin.subscription(backlog, "s")["msgBacklog"] == 10
    newest = admin.get(f"{DEFAULT}/{backlog}/lastMessageId")
    assert isinstance(newest, dict)
    action(page, "Reset")
    page.get_by_label("To", exact=True).select_option("position")
    page.get_by_label("Position").fill(f"{newest['ledgerId']}:{int(str(newest['entryId'])) - 1}")
    confirm(page, "Reset")
    assert receive(client.subscribe(backlog, "s"), 2, acknowledge=False) == numbered(2, 8)
    action(page, "Reset")
    page.get_by_label("To", exact=True).select_option("time")
    page.get_by_role("dialog").get_by_label("Time").fill("2020-01-01T00:00:00")
    confirm(page, "Reset")
    assert admin.subscription(backlog, "s")["msgBacklog"] == 10


def test_old_messages_expire(admin: Admin, backlog: str, show: Callable[[str], Page]) -> None:
    page = show(f"topic/{DEFAULT}/{backlog}")
    action(page, "Expire")
    page.get_by_label("Age in seconds").fill("0")
    confirm(page, "Expire")
    wait_until(lambda: admin.subscription(backlog, "s")["msgBacklog"] == 0, "an empty backlog")


def test_subscription_and_topic_are_deleted_after_their_name_is_typed(
    admin: Admin, watch: Watch, client: pulsar.Client, backlog: str, show: Callable[[str], Page]
) -> None:
    page = show(f"topic/{DEFAULT}/{backlog}")
    action(page, "Delete")
    deletes = page.get_by_role("dialog").get_by_role("button", name="Delete subscription")
    expect(deletes).to_be_disabled()
    page.get_by_label("Type s to confirm").fill("s")
    confirm(page, "Delete subscription")
    assert admin.stats(backlog)["subscriptions"] == {}
    consumer = client.subscribe(backlog, "again")
    watch.expected.update((404, 412))
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label(f"Type {backlog} to confirm").fill(backlog)
    page.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("412")
    consumer.close()
    page.get_by_label("Clients and subscriptions").select_option("true")
    confirm(page, "Delete topic")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    names = admin.get(DEFAULT)
    assert isinstance(names, list)
    assert f"persistent://public/default/{backlog}" not in names


def test_namespace_and_topic_are_created_and_deleted(
    admin: Admin, watch: Watch, show: Callable[[str], Page]
) -> None:
    page = show("namespaces")
    page.get_by_role("button", name="New namespace").click()
    page.get_by_label("Tenant").fill("acme")
    page.get_by_label("Namespace", exact=True).fill("shop")
    confirm(page, "Create namespace")
    expect(page.get_by_role("heading", level=1)).to_have_text("acme/shop")
    assert admin.get("namespaces/acme") == ["acme/shop"]
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill("baskets")
    confirm(page, "Create topic")
    expect(page.get_by_role("heading", level=1)).to_have_text("baskets")
    assert admin.get("persistent/acme/shop") == ["persistent://acme/shop/baskets"]
    watch.expected.add(409)
    page.goto(page.url.partition("#")[0] + "#/namespaces/acme/shop")
    page.get_by_role("button", name="Delete namespace").click()
    page.get_by_label("Type acme/shop to confirm").fill("acme/shop")
    page.get_by_role("dialog").get_by_role("button", name="Delete namespace").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("409")
    admin.delete("persistent/acme/shop/baskets")
    confirm(page, "Delete namespace")
    wait_until(lambda: admin.get("namespaces/acme") == [], "the namespace is gone")


def test_setting_is_searched_changed_refused_and_restored(
    admin: Admin, watch: Watch, show: Callable[[str], Page]
) -> None:
    key = "managedLedgerCacheEvictionTimeThresholdMillis"
    page = show("settings")
    page.get_by_role("searchbox").fill(key)
    row = page.get_by_role("row", name=re.compile(rf"^{key}\b"))
    row.get_by_role("button", name="Change").click()
    watch.expected.add(412)
    page.get_by_label("Value").fill("much")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("412")
    page.get_by_label("Value").fill("2500")
    confirm(page, "Change")
    runtime = admin.get("brokers/configuration/runtime")
    assert isinstance(runtime, dict)
    assert runtime[key] == "2500"
    expect(row).to_contain_text("2500")
    row.get_by_role("button", name="Undo").click()
    confirm(page, "Undo")
    expect(row.get_by_role("button", name="Undo")).to_have_count(0)
    runtime = admin.get("brokers/configuration/runtime")
    assert isinstance(runtime, dict)
    assert runtime[key] == "1000"


def test_cache_page_shows_topics_queue_and_the_effect_of_another_size(
    admin: Admin, show: Callable[[str], Page]
) -> None:
    page = show("cache")
    inserted = page.locator(".tile", has_text="Entries inserted")
    expect(inserted).to_contain_text(re.compile(r"over \d+ s; .* since the start"))
    expect(
        page.get_by_role("region", name="Topics by cached bytes").get_by_role("link").first
    ).to_be_visible()
    entered = page.get_by_role("region", name="Inserted entries by cause").get_by_role("row")
    expect(entered.filter(has_text="it was published")).to_contain_text(re.compile(r"[1-9]"))
    expect(entered.filter(has_text="read from storage")).to_be_visible()
    expect(page.get_by_role("region", name="Evicted entries by reason").get_by_role("row")).to_have_count(5)
    expect(page.get_by_role("region", name="Working sets").get_by_text("slow-report")).to_be_visible()
    slider = page.get_by_label("Compare another size")
    expect(slider).to_be_visible()
    expect(page.locator(".line-of-conf")).to_have_text("managedLedgerCacheSizeMB=1")
    slider.focus()
    slider.press("End")
    expect(page.locator(".line-of-conf")).not_to_have_text("managedLedgerCacheSizeMB=1")
    page.get_by_label("Why is this entry cached or not?").fill("orders")
    page.get_by_label("Entry", exact=True).fill(newest_entry(admin))
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_curve_that_has_stopped_says_when_and_why(page: Page, show: Callable[[str], Page]) -> None:
    page.route("**/console/cache*", _with_stopped_curve)
    show("cache")
    panel = page.get_by_role("region", name="The effect of another size")
    expect(panel.get_by_role("alert")).to_have_text(
        re.compile(r"^The curve stopped at \d\d:\d\d:\d\d: ZeroDivisionError: by the test\. ")
    )


def _with_stopped_curve(route: Route) -> None:
    answer = route.fetch()
    found = answer.json()
    found["missRatioCurve"]["stopped"] = {"secondsAgo": 90.5, "reason": "ZeroDivisionError: by the test"}
    route.fulfill(response=answer, json=found)


@pytest.mark.one_broker("asks for the bookie inside the process")
def test_bookies_show_their_disks(show: Callable[[str], Page]) -> None:
    page = show("bookies")
    expect(page.get_by_text("writable").first).to_be_visible()
    expect(page.get_by_role("list", name="Disks").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_text("newest journal syncs")).to_be_visible()


def test_page_has_one_stream_at_a_time(admin: Admin, page: Page, show: Callable[[str], Page]) -> None:
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    show("overview")
    for name in ("Cache", "Settings", "Topics"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert len(streams) == 1
    show("topic/persistent/public/default/orders")
    expect(page.locator(".strip-rows .strip-line").first).to_be_visible()
    assert len(streams) == 2
    wait_until(lambda: open_streams(admin) == 1, "the end of the first stream")


def open_streams(admin: Admin) -> object:
    session = admin.get("magnetar/console/session")
    assert isinstance(session, dict)
    return session["pages"]


def test_warning_of_the_log_appears(busy: BrokerProcess, show: Callable[[str], Page]) -> None:
    page = show("log")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log warnings")
    assert send(busy.addresses.admin, "GET /metrics", host="foreign.example").status == 421
    expect(page.locator(".warnings li", has_text="foreign.example")).to_be_visible()


def test_names_never_become_markup(
    busy: BrokerProcess, client: pulsar.Client, show: Callable[[str], Page]
) -> None:
    name = "<img src=x onerror=alert(1)>"
    client.subscribe(f"persistent://public/default/{name}", "<b>s</b>").close()
    page = show("topics?search=onerror")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.get_by_role("region", name="Subscriptions").get_by_text("<b>s</b>").first).to_be_visible()
    assert page.locator("main img, main b").count() == 0
