"""Each route of Apache Pulsar's broker is served, and answers an existing path with JSON and never with a page."""

from __future__ import annotations

import re

import pytest
from aiohttp import ClientSession, FormData, web

from broker.admin.http.pulsar_routes import PulsarRoute, pulsar_routes, unserved
from broker.admin.server import routes
from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call, refusal

TEMPLATE = re.compile(r"\{(\w+)\}")
STOPS = ("POST", "/admin/v2/brokers/shutdown")


def sample(path: str) -> str:
    """Returns the path with a value for each variable part: an existing namespace, and otherwise nothing."""
    values = {"tenant": "public", "namespace": "default", "cluster": "standalone"}
    return TEMPLATE.sub(lambda part: values.get(part[1], "1"), path)


def end_of_session(route: PulsarRoute) -> tuple[bool, int]:
    """Puts deletions last, and those of a namespace or tenant behind all that is in it."""
    return route.method == "DELETE", -route.path.count("/")


async def test_every_route_of_pulsar_is_served(admin: ClientSession) -> None:
    assert unserved(routes()) == []
    assert len(pulsar_routes()) == 665
    for route in sorted(pulsar_routes(), key=end_of_session):
        if route == STOPS:
            continue
        async with admin.request(route.method, sample(route.path), data=b"1") as answer:
            text = await answer.text()
            assert "<html" not in text, route
            assert answer.status != 405 or "reason" in text, route
            assert answer.status != 500, (route, text)


async def test_paths_that_pulsar_lacks_get_a_page(admin: ClientSession) -> None:
    for line, status in (
        ("GET /admin/v2/nothing", 404),
        ("GET /admin/v2/brokers/standalone/x", 404),
        ("POST /admin/v2/clusters", 405),
        ("GET /admin/v2/clusters/standalone/failureDomains/d/x", 404),
    ):
        answered, text = await call(admin, line, 1)
        assert (answered, str(text).startswith("<html>")) == (status, True), line


async def test_brokers_of_a_cluster_do_not_stand_for_other_requests(
    admin: ClientSession, broker: BrokerService
) -> None:
    words = [
        path.rpartition("/")[2]
        for method, path in pulsar_routes()
        if method == "GET" and re.fullmatch("/admin/v2/brokers/[a-zA-Z-]+", path)
    ]
    assert len(words) == 7
    names = await call(admin, "GET /admin/v2/brokers/standalone")
    assert names == (200, [broker.addresses.admin_url.partition("://")[2]])
    for word in words:
        assert await call(admin, f"GET /admin/v2/brokers/{word}") != names


def test_a_route_of_the_same_shape_serves_and_a_name_in_the_place_of_a_word_does_not() -> None:
    async def handler(request: web.Request) -> web.Response:
        raise NotImplementedError

    only = [
        web.get("/admin/v2/brokers/{any}", handler),
        web.get("/admin/v2/{domain:persistent|non-persistent}/{t}/{n:[a-z]{1,9}}", handler),
    ]
    served = set(pulsar_routes()) - set(unserved(only))
    assert {path for _, path in served} == {
        "/admin/v2/brokers/{cluster}",
        "/admin/v2/persistent/{tenant}/{namespace}",
        "/admin/v2/non-persistent/{tenant}/{namespace}",
    }


async def test_quoted_slashes_belong_to_a_name(admin: ClientSession) -> None:
    missing = (404, "Cluster does not exist")
    assert await refusal(admin, "GET /admin/v2/clusters/a%2Fb/migrate") == missing
    assert (await call(admin, "POST /admin/v2/clusters/a/b/migrate"))[0] == 404


async def test_value_that_fits_no_route_gets_a_page_when_the_route_is_served(admin: ClientSession) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    assert (await call(admin, f"POST {topic}/subscription/s/resetcursor/abc"))[0] == 404


async def test_functions_and_packages_are_not_enabled(admin: ClientSession) -> None:
    reason = "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false"
    for path in ("v3/functions/public/default", "v3/sinks/builtinsinks", "v2/worker/cluster"):
        assert await refusal(admin, f"GET /admin/{path}") == (409, reason)
    packages = "GET /admin/v3/packages"
    reason = "Package Management Service is not enabled in the broker."
    assert await refusal(admin, f"{packages}/function/public/default") == (503, reason)
    assert (await refusal(admin, f"{packages}/x/public/default"))[0] == 412


@pytest.mark.parametrize("kind", ["functions", "sources", "sinks"])
async def test_upload_of_a_function_is_not_enabled(admin: ClientSession, kind: str) -> None:
    form = FormData()
    form.add_field("data", b"class F: ...", filename="f.py", content_type="application/octet-stream")
    async with admin.post(f"/admin/v3/{kind}/public/default/f", data=form) as answered:
        assert (answered.status, "functionsWorkerEnabled" in await answered.text()) == (409, True)
    evil = {"Origin": "http://evil.example", "Content-Type": "multipart/form-data; boundary=x"}
    async with admin.post(f"/admin/v3/{kind}/public/default/f", data=b"--x--", headers=evil) as answered:
        assert answered.status == 403
    plain = {"Content-Type": "text/plain"}
    async with admin.post("/admin/v2/persistent/public/default/t/terminate", headers=plain) as answered:
        assert answered.status == 415
