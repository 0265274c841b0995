"""`/openapi.json` is valid OpenAPI 3.1 and describes every route that the broker serves."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import ClientSession
from openapi_spec_validator import OpenAPIV31SpecValidator

from broker.admin.server import create_app, routes
from broker.compose.broker_service import BrokerService
from foundation.loop.slices import ITEMS_MAX

VARIABLE = re.compile(r"\{(\w+)(?::((?:[^{}]|\{[^{}]*\})*))?\}")
RETENTION = "/admin/v2/namespaces/{tenant}/{namespace}/retention"
PRODUCERS = "/admin/v2/namespaces/{tenant}/{namespace}/maxProducersPerTopic"
TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


async def described(admin: ClientSession) -> dict[str, Any]:
    async with admin.get("/openapi.json") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        found: dict[str, Any] = await answer.json()
    return found


async def test_description_is_valid(admin: ClientSession) -> None:
    OpenAPIV31SpecValidator(await described(admin)).validate()


async def test_routes_are_added_in_slices(broker: BrokerService) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await create_app(broker)
    counting.cancel()
    assert turns >= len(routes()) // ITEMS_MAX


async def test_every_served_route_is_described(admin: ClientSession, broker: BrokerService) -> None:
    paths = (await described(admin))["paths"]
    operations = {(method, VARIABLE.sub("{}", path)) for path, item in paths.items() for method in item}
    app = await create_app(broker)
    served = [route for route in app.router.routes() if route.method != "HEAD" and route.resource is not None]
    assert len(served) > len(routes())
    shapes = {
        (route.method.lower(), VARIABLE.sub("{}", route.resource.canonical))
        for route in served
        if route.resource is not None
    }
    missing = {*shapes, ("get", "/metrics")} - operations
    assert not missing


async def test_operation_has_summary_parameters_and_body(admin: ClientSession) -> None:
    paths = (await described(admin))["paths"]
    assert paths[RETENTION]["post"]["summary"] == "Sets the policy for retention."
    body = paths[PRODUCERS]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (body["type"], body["minimum"]) == ("integer", 0)
    delete = paths[TOPIC]["delete"]
    assert delete["summary"] == "Deletes a topic; 412 while clients are connected, unless `force` is set."
    by_name = {one["name"]: one for one in delete["parameters"]}
    assert by_name["domain"]["schema"]["enum"] == ["persistent", "non-persistent"]
    assert by_name["force"] == {"name": "force", "in": "query", "schema": {"type": "boolean"}}


async def test_second_request_gets_the_same_text(admin: ClientSession) -> None:
    assert await described(admin) == await described(admin)
