"""Makes the OpenAPI 3.1 description of the admin port from its routes; `GET /openapi.json` returns it.

Paths come from the routes, summaries from the docstrings of their handlers, bodies of policies from the table of
policies, and query parameters from Pulsar's own list of routes. So the description cannot differ from the code.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from aiohttp import web

from broker.admin.http.pulsar_routes import VARIABLE_PART, path_shapes, query_parameters
from broker.service.policies.forms import Form
from broker.service.policies.table import POLICIES, Policy
from foundation.value import Json

OPENAPI_PATH: Final = "/openapi.json"
"""Path of the description itself."""
_WORDS: Final = re.compile(r"[\w-]+(\|[\w-]+)+")
_VERBS: Final = {"GET": "Returns", "POST": "Sets", "PUT": "Sets", "DELETE": "Removes"}
_EVERY_METHOD: Final = ("GET", "PUT", "POST", "DELETE")
_JAVA_TYPES: Final = {
    "boolean": "boolean",
    "Boolean": "boolean",
    "int": "integer",
    "Integer": "integer",
    "long": "integer",
    "Long": "integer",
}
_DECIMAL: Final = "-?[0-9]"
_ANY: Final = "Any JSON value."
_BODY_METHODS: Final = ("PUT", "POST")


def openapi_route(served: Iterable[web.RouteDef]) -> web.RouteDef:
    """Returns the route that describes `served` and itself."""
    route: web.RouteDef
    text: asyncio.Task[bytes] | None = None

    async def openapi(request: web.Request) -> web.Response:
        """Returns this description, OpenAPI 3.1."""
        nonlocal text
        if text is None:
            # In a thread, because it takes some ten milliseconds, in which the loop would serve no message.
            text = asyncio.ensure_future(asyncio.to_thread(_text, [*served, route]))
        # Shielded: a request that is given up must not end the work for all later ones.
        return web.Response(body=await asyncio.shield(text), content_type="application/json")

    route = web.get(OPENAPI_PATH, openapi)
    return route


def _text(served: list[web.RouteDef]) -> bytes:
    return json.dumps(describe(served)).encode()


def describe(served: Iterable[web.RouteDef]) -> dict[str, Json]:
    """Returns the description of these routes."""
    # OpenAPI forbids two templates that differ in the names of their variables alone.
    templates: dict[str, str] = {}
    paths: dict[str, dict[str, Json]] = {}
    queries = query_parameters()
    policies = dict(_policies())
    for route in served:
        if route.path.startswith("/ws/"):
            continue  # OpenAPI cannot describe WebSockets.
        shape = VARIABLE_PART.sub("{}", route.path)
        template = templates.setdefault(shape, VARIABLE_PART.sub(r"{\1}", route.path))
        operations = paths.setdefault(template, {})
        for method in _EVERY_METHOD if route.method == "*" else (route.method,):
            query = queries.get((method, next(path_shapes(route.path))), {})
            # aiohttp asks the first route that fits, so a later one of the same shape never answers.
            if method.lower() not in operations:
                operations[method.lower()] = _operation(method, route, template, query, policies)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Magnetar admin API",
            "version": "2",
            "description": "Apache Pulsar's admin API, as far as Magnetar serves it.",
        },
        "paths": {**paths},
        "components": {"responses": {"refused": _refused()}},
    }


def _operation(
    method: str, route: web.RouteDef, template: str, query: dict[str, str], policies: dict[str, Policy[Any]]
) -> dict[str, Json]:
    """Returns one operation; its parameters are named as in the template."""
    policy = policies.get(template)
    operation: dict[str, Json] = {
        "operationId": f"{method.lower()} {template}",
        "summary": _summary(method, route.handler, policy),
        "tags": [_tag(template)],
        "parameters": [*_path_parameters(route.path, template), *_query_parameters(query)],
        "responses": {
            "2XX": {"description": "Done, or the value in JSON."},
            "default": {"$ref": "#/components/responses/refused"},
        },
    }
    if method in _BODY_METHODS and not _is_bodiless(policy):
        schema: Json = {"description": _ANY} if policy is None else _schema(policy.form)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _is_bodiless(policy: Policy[Any] | None) -> bool:
    return policy is not None and any(rest.bodiless for rest in (policy.namespace, policy.topic) if rest)


def _summary(method: str, handler: Callable[..., object] | object, policy: Policy[Any] | None) -> str:
    if policy is not None:
        return f"{_VERBS[method]} the policy for {policy.title}."
    text = inspect.getdoc(handler)
    return text.splitlines()[0] if text else "Answers as Pulsar does."


def _tag(path: str) -> str:
    """Returns the group of a path: the word after the version, or its first one."""
    words = path.strip("/").split("/")
    return words[2] if words[0] == "admin" and len(words) > 2 else words[0]


def _path_parameters(path: str, template: str) -> Iterator[Json]:
    """Yields the variable parts of a path with their patterns, under the names of the template."""
    names = [found[1] for found in VARIABLE_PART.finditer(template)]
    for name, found in zip(names, VARIABLE_PART.finditer(path), strict=True):
        pattern = found[2] or ""
        schema: dict[str, Json] = {"type": "string"}
        if _WORDS.fullmatch(pattern):
            schema["enum"] = [*pattern.split("|")]
        elif pattern.startswith(_DECIMAL):
            schema = {"type": "integer"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(query: dict[str, str]) -> Iterator[Json]:
    for name, java in query.items():
        yield {"name": name, "in": "query", "schema": {"type": _JAVA_TYPES.get(java, "string")}}


def _policies() -> Iterator[tuple[str, Policy[Any]]]:
    """Yields the policies whose value is a body, by template of the path."""
    for policy in POLICIES:
        if policy.namespace is not None and not policy.namespace.in_query:
            yield f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.namespace.word}", policy
        if policy.topic is not None and not policy.topic.in_query:
            yield f"/admin/v2/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}/{policy.topic.word}", policy


def _schema(form: Form[Any]) -> dict[str, Json]:
    """Returns the JSON schema of a policy's value, with its allowed values in words."""
    return {"description": form.words, **form.schema}


def _refused() -> dict[str, Json]:
    """Returns the answer to a request that fails: `{"reason": text}` in nearly all cases."""
    schema: Json = {"type": "object", "properties": {"reason": {"type": "string"}}}
    return {
        "description": "Refused, with the reason.",
        "content": {"application/json": {"schema": schema}},
    }
