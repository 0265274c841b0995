"""A browser, and pages of it that watch for errors: a console error or a failed request fails the test that caused it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.console.traffic import busy_broker
from tests.interop.support import Admin
from tests.support.browser import module_without_browser
from tests.vectors.broker_process import BrokerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WAIT_MS: Final = 60_000
"""Limit of each wait on a page, for a busy machine."""
BROKEN_OFF: Final = ("net::ERR_NETWORK_CHANGED", "net::ERR_SOCKS_CONNECTION_FAILED")
"""Chromium breaks off all loads, also those of the loopback, when a network interface comes or goes: a container that
starts on the machine is enough. The second one is the same in a context with a client certificate."""
SCREENSHOTS: Final = "MAGNETAR_SCREENSHOTS"
"""The environment variable that names a folder for screenshots."""


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skips modules that need a browser's package which is missing."""
    return module_without_browser(module_path, parent)


class Watch:
    """Collects the errors of a page."""

    def __init__(self) -> None:
        self.expected: set[int] = set()
        """Status codes that the test provokes; a browser writes each into its console too."""
        self.network_changes = 0
        """Loads that the browser broke off because a network interface of the machine came or went."""
        self._errors: list[tuple[int, str]] = []

    def follow(self, page: Page) -> None:
        """Listens to a page."""
        page.on("console", self._message)
        page.on("pageerror", lambda error: self._errors.append((0, f"{error}\n{error.stack}")))
        page.on("response", self._response)
        page.on("requestfailed", self._failure)

    def errors(self) -> list[str]:
        """Returns what went wrong and was not expected."""
        return [text for status, text in self._errors if status not in self.expected]

    def take(self) -> set[int]:
        """Returns the status codes so far, and forgets them; 0 is an error of the page itself."""
        found = {status for status, _ in self._errors}
        self._errors.clear()
        return found

    def _message(self, message: ConsoleMessage) -> None:
        # "Failed to load resource: the server responded with a status of 409 (Conflict)"; `_response` tells of it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self._errors.append((0, f"{message.type}: {message.text} at {message.location}"))

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self._errors.append(
                (response.status, f"{response.status} {response.request.method} {response.url}")
            )

    def _failure(self, request: Request) -> None:
        if request.failure in BROKEN_OFF:
            self.network_changes += 1
        # The page itself ends its stream and loads that are under way when another view opens.
        elif request.failure != "net::ERR_ABORTED":
            self._errors.append((-1, f"{request.failure} {request.method} {request.url}"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a headless browser: one of {', '.join(BROWSERS)}")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with traffic."""
    with busy_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def admin(busy: BrokerProcess) -> Admin:
    return Admin(busy.addresses.admin)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def load_whole(page: Page, watch: Watch) -> None:
    """Lets `goto` and `reload` load a page again whose load was broken off: its modules come once."""
    from playwright.sync_api import Error

    goto, reload = page.goto, page.reload

    def load(begin: Callable[[], Response | None]) -> Response | None:
        while True:
            before = watch.network_changes
            response = None
            try:
                response = begin()
                if page.locator("script[src='/console/main.js']").count() and watch.network_changes == before:
                    page.locator("h1").first.wait_for(state="attached")
            except Error as error:
                if not any(name in error.message for name in BROKEN_OFF):
                    raise
                watch.network_changes = before + 1
            if watch.network_changes == before:
                return response

    def load_address(url: str) -> Response | None:
        def begin() -> Response | None:
            # From another page: to the same address with another fragment the browser loads nothing.
            if watch.network_changes != changes:
                goto("about:blank")
            return goto(url)

        changes = watch.network_changes
        return load(begin)

    def load_again() -> Response | None:
        return load(reload)

    page.goto = load_address  # type: ignore[method-assign,assignment]
    page.reload = load_again  # type: ignore[method-assign,assignment]


@pytest.fixture
def open_page(browser: Browser, watch: Watch) -> Iterator[Callable[..., Page]]:
    """Opens pages of a browser without a past; options are those of Playwright's contexts."""
    contexts = []

    def opened(width: int = 1600, height: int = 1000, **options: object) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)  # type: ignore[arg-type]
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        watch.follow(page)
        load_whole(page, watch)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not watch.errors()


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for screenshots: the one that the environment names, or a new one."""
    named = os.environ.get(SCREENSHOTS)
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
