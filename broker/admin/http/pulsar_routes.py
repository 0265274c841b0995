"""The routes of Apache Pulsar's broker (`pulsar_routes.tsv`), and those among them that this broker lacks: none.

`tests/broker/admin/http/test_pulsar_routes.py` sends a request for each. The 404 page is for paths that Pulsar lacks too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

VARIABLE_PART: Final = re.compile(r"\{(\w+)(?::((?:[^{}]|\{[^{}]*\})*))?\}")
"""A variable part of a path, with its pattern if it has one; a pattern may contain braces."""
_DOMAIN: Final = "domain"
"""The variable part whose pattern is a list of words."""


class PulsarRoute(NamedTuple):
    """A request that Pulsar's broker serves."""

    method: str
    """`GET`, `PUT`, `POST` or `DELETE`."""
    path: str
    """The path, variable parts in braces."""


@cache
def pulsar_routes() -> tuple[PulsarRoute, ...]:
    """Returns all routes of the file, sorted by path."""
    return tuple(PulsarRoute(method, path) for method, path, _ in _rows())


def query_parameters() -> dict[tuple[str, str], dict[str, str]]:
    """Returns the query parameters of Pulsar's routes, as Java types by name, by method and shape of the path."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for method, path, query in _rows():
        found[method, next(path_shapes(path))] = dict(one.split(":") for one in query.split(",") if one)
    return found


def _rows() -> Iterator[tuple[str, str, str]]:
    text = Path(__file__).with_name("pulsar_routes.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            method, path, *query = line.split("\t")
            yield method, path, query[0] if query else ""


def unserved(served: Iterable[web.RouteDef]) -> list[PulsarRoute]:
    """Returns Pulsar's routes that have no route of the same shape among `served`.

    Shapes are compared part by part, so `/brokers/{cluster}` does not stand for `/brokers/version`.
    """
    shapes = {(route.method, shape) for route in served for shape in path_shapes(route.path)}
    return [
        route
        for route in pulsar_routes()
        if not any(
            (method, shape) in shapes for method in (route.method, "*") for shape in path_shapes(route.path)
        )
    ]


def path_shapes(path: str) -> Iterator[str]:
    """Yields the path with `{}` for each variable part; one shape per domain where the domain is variable."""
    domain = next((part for part in VARIABLE_PART.finditer(path) if part[1] == _DOMAIN and part[2]), None)
    if domain is None:
        yield VARIABLE_PART.sub("{}", path)
    else:
        for name in domain[2].split("|"):
            yield VARIABLE_PART.sub("{}", path[: domain.start()] + name + path[domain.end() :])
