"""The console with authentication: the login, credentials that stay in the tab, a role that may only consume."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pulsar
import pytest
from passlib.hash import ldap_sha1
from playwright.sync_api import Page, expect

from broker.config.security_keys import BASIC_PROVIDER, TLS_PROVIDER, TOKEN_PROVIDER
from tests.console.conftest import Watch
from tests.console.test_screens import findings
from tests.interop.support import WAIT_S, numbered, publish
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.tokens import SECRET_URL, token
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PASSWORD: Final = "open sesame é"
SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationProviders": f"{TOKEN_PROVIDER},{BASIC_PROVIDER}",
    "tokenSecretKey": SECRET_URL,
    "authorizationEnabled": "true",
    "superUserRoles": "admin",
    "basicAuthConf": f"data:,admin:{ldap_sha1.hash(PASSWORD)}",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks for a role, with a topic that `reader` may consume from."""
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), SETTINGS, memory=True) as broker:
        grant(broker, "reader", ["consume"])
        client = pulsar.Client(
            broker.addresses.pulsar,
            authentication=pulsar.AuthenticationToken(token({"sub": "admin"})),
            operation_timeout_seconds=60,
        )
        client.subscribe("orders", "s").close()
        client.subscribe("orders", "theirs").close()
        grant(broker, "subscription/theirs", ["another"])
        publish(client.create_producer("orders", batching_enabled=False), numbered(5))
        client.close()
        yield broker


def grant(broker: BrokerProcess, role: str, actions: list[str]) -> None:
    """Posts to the permissions of the namespace; `role` may be a subscription, which gets a list of roles."""
    request = urllib.request.Request(
        f"{broker.addresses.admin}/admin/v2/namespaces/public/default/permissions/{role}",
        method="POST",
        data=json.dumps(actions).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token({'sub': 'admin'})}"},
    )
    urllib.request.urlopen(request, timeout=WAIT_S).close()


def sign_in(page: Page, role: str) -> None:
    page.get_by_label("Token", exact=True).last.fill(token({"sub": role}))
    page.get_by_role("button", name="Sign in").click()


def test_login_is_asked_for_refused_and_forgotten(
    guarded: BrokerProcess, watch: Watch, page: Page, screenshots: Path
) -> None:
    watch.expected.add(401)
    page.goto(guarded.addresses.admin)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    expect(page.get_by_role("navigation")).to_have_count(0)
    assert not findings(page)
    page.screenshot(path=screenshots / "login-wide-light.png")
    page.get_by_label("Token", exact=True).last.fill("tokén")
    page.get_by_role("button", name="Sign in").click()
    # Nothing was sent: a browser refuses such a header, which would look like a broker that is away.
    expect(page.get_by_role("alert")).to_have_text(
        "Character 4 of the token is “é” (U+00E9). A token has letters, digits and signs of ASCII alone: copy it again."
    )
    page.get_by_label("Token", exact=True).last.fill("no-token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("401")
    sign_in(page, "admin")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator(".connection")).to_have_text("live")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert page.evaluate("Object.values(localStorage).join() + document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.evaluate("sessionStorage.length") == 0


def test_user_and_password_open_the_console(guarded: BrokerProcess, watch: Watch, page: Page) -> None:
    watch.expected.add(401)
    page.goto(guarded.addresses.admin)
    page.get_by_label("Sign in with").select_option("basic")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_certificate_of_the_browser_opens_the_console(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        **SETTINGS,
        "authenticationProviders": f"{TLS_PROVIDER},{BASIC_PROVIDER}",
        "superUserRoles": "client",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
        "tlsTrustCertsFilePath": str(certificates.authority),
    }
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        address = broker.addresses.admin_tls
        proof = {
            "origin": address,
            "certPath": str(certificates.client),
            "keyPath": str(certificates.key(certificates.client)),
        }
        page = open_page(ignore_https_errors=True, client_certificates=[proof])
        page.goto(f"{address}/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        expect(page.locator(".role")).to_have_text("client")
        expect(page.locator(".connection")).to_have_text("live")


def test_role_that_may_only_consume_is_offered_nothing_else(
    guarded: BrokerProcess, watch: Watch, page: Page
) -> None:
    page.goto(guarded.addresses.admin)
    sign_in(page, "reader")
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(1)
    page.get_by_label("Topic", exact=True).fill("orders")
    assert watch.take() == {401}, watch.errors()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    actions = page.get_by_role("group", name="Actions on s").get_by_role("button")
    expect(actions).to_have_text(["Peek", "Skip", "Reset", "Expire", "Delete"])
    # Its permission names another role.
    expect(page.get_by_role("rowheader", name="theirs")).to_be_visible()
    expect(page.get_by_role("group", name="Actions on theirs").get_by_role("button")).to_have_count(0)
    assert page.get_by_role("button", name=re.compile("Send a message|Delete topic")).count() == 0
    page.get_by_role("button", name="Peek").click()
    expect(page.locator(".message")).to_have_count(5)
    page.get_by_role("button", name="Skip").click()
    page.get_by_label("Number of entries").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()
    expect(page.get_by_role("row", name=re.compile("^s ")).get_by_role("cell").nth(1)).to_have_text("3")
    page.goto(f"{guarded.addresses.admin}/#/settings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def test_role_without_a_right_reads_the_refusal(guarded: BrokerProcess, watch: Watch, page: Page) -> None:
    watch.expected.update((401, 403))
    page.goto(f"{guarded.addresses.admin}/#/topic/persistent/public/default/orders")
    sign_in(page, "stranger")
    expect(page.get_by_role("alert").first).to_contain_text(re.compile("40[13]"))


def test_lost_broker_is_told_and_found_again(
    tmp_path: Path, watch: Watch, open_page: Callable[..., Page], screenshots: Path
) -> None:
    watch.expected.add(-1)
    with BrokerProcess(tmp_path, {"webServicePort": str(free_port())}, memory=True) as broker:
        page = open_page(360, 740, color_scheme="dark")
        page.goto(f"{broker.addresses.admin}/#/overview")
        expect(page.locator(".connection")).to_have_text("live")
        broker.kill()
        expect(page.locator(".connection")).to_have_text("connection lost")
        expect(page.locator(".lost")).to_contain_text("Next attempt in")
        page.screenshot(path=screenshots / "lost-narrow-dark.png")
        with page.expect_request("**/events"):
            page.get_by_role("button", name="Try now").click()
        broker.start()
        expect(page.locator(".connection")).to_have_text("live")
        expect(page.locator(".lost")).to_be_hidden()
