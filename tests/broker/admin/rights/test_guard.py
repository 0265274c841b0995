"""The table of rights: every route has a row or needs a superuser, and templates are matched by their form."""

from __future__ import annotations

import pytest

from broker.admin.rights.needs import Need, Right, RightsTable, Rows, parts_of_path
from broker.admin.rights.table import RIGHTS
from broker.admin.server import create_app
from broker.compose.broker_service import BrokerService
from broker.service.policies.table import POLICIES, PolicyRight

NEEDS = {
    PolicyRight.ADMIN: (Need(Right.WITHIN_TENANT, 403),),
    PolicyRight.ADMIN_401: (Need(Right.WITHIN_TENANT, 401),),
    PolicyRight.SUPERUSER: (Need(Right.SUPERUSER),),
}
WITHOUT_ROW: frozenset[str] = frozenset()
"""Routes that need a superuser only because no row names them; add a row instead of a name here."""


async def test_every_route_has_a_row(broker: BrokerService) -> None:
    routes = [
        (route.method, route.resource.canonical)
        for route in (await create_app(broker)).router.routes()
        if route.resource is not None
    ]
    assert len(routes) > 100
    found = {f"{method} {path}" for method, path in routes if RIGHTS.find(method, path) is None}
    assert found == WITHOUT_ROW


def test_row_is_found_whatever_the_route_calls_its_parts() -> None:
    row = RIGHTS.find("POST", "/admin/v2/{domain}/{t}/{n}/{topic}/subscription/{sub}/skip_all")
    assert row is not None
    assert row.needs == (Need(Right.CONSUME),)
    values = {"domain": "non-persistent", "t": "t1", "n": "n1", "topic": "a", "sub": "s"}
    template = "/admin/v2/{domain}/{t}/{n}/{topic}/subscription/{sub}/skip_all"
    assert parts_of_path(row, template, values) == {
        "domain": "non-persistent",
        "tenant": "t1",
        "namespace": "n1",
        "topic": "a",
        "subscription": "s",
    }


def test_domain_may_be_a_fixed_word_of_the_route() -> None:
    template = "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/stats"
    row = RIGHTS.find("HEAD", template)
    assert row is not None
    parts = parts_of_path(row, template, {"tenant": "t", "namespace": "n", "topic": "a"})
    assert parts["domain"] == "non-persistent"


def test_unknown_route_has_no_row() -> None:
    assert RIGHTS.find("GET", "/admin/v2/brand/new") is None
    assert RIGHTS.find("PATCH", "/admin/v2/tenants") is None


def test_two_rows_for_one_route_are_refused() -> None:
    rows = Rows((Need(Right.SUPERUSER),), "/x", "GET /{a}\nGET /{b}")
    with pytest.raises(ValueError, match="two rows"):
        RightsTable((rows,))


def test_policy_has_its_right_in_its_own_row_alone() -> None:
    for policy in POLICIES:
        for rest, owner in (
            (policy.namespace, "/admin/v2/namespaces/{tenant}/{namespace}"),
            (policy.topic, "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"),
        ):
            if rest is None:
                continue
            for method in ("GET", rest.verb, "DELETE"):
                row = RIGHTS.find(method, f"{owner}/{rest.word}")
                right = rest.right if method == "GET" else rest.set_right or rest.right
                assert row is not None
                assert row.needs == NEEDS[right], f"{method} {rest.word}"
