"""The pages of a broker without topics in a real browser: the first ones that a newcomer sees."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

import magnetar
from tests.console.conftest import Watch

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def test_broker_without_topics_says_what_is_missing(watch: Watch, page: Page) -> None:
    watch.expected.add(404)
    with magnetar.Broker() as empty:

        def shows(view: str, text: str) -> None:
            page.goto(f"{empty.admin_url}/#/{view}")
            expect(page.get_by_text(text, exact=True)).to_be_visible()

        shows("topics", "No topic is open or dormant.")
        shows("topics?search=x", "No topic is open or dormant.")
        shows("namespaces/public/default", "The namespace has no topic.")
        page.goto(f"{empty.admin_url}/#/cache")
        expect(page.get_by_text("0 sampled reads in")).to_be_visible()
        expect(page.get_by_text("the band shows")).to_have_count(0)
        page.goto(f"{empty.admin_url}/#/topic/persistent/public/default/nothing")
        expect(page.locator("main .error").first).to_contain_text("not found")
        expect(page.get_by_text("Loading")).to_be_hidden()
        # The page leaves before the broker does, or its stream would end with an error of the network.
        page.goto("about:blank")
