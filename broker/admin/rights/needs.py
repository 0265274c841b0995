"""Needs: the rights that a route asks for, and the table in which a route finds them.

A row has methods, a template of a path, and one need or several, which are checked in order. A path is found by the
template of the route that aiohttp chose, never by the text of the request, so the check and the handler cannot disagree
about which route runs. A route without a row needs a superuser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Right(Enum):
    """The kind of a right."""

    AUTHENTICATED = "any client that has authenticated itself"
    """No right beyond authentication."""
    SUPERUSER = "superuser"
    """A role of `superUserRoles`."""
    TENANT = "administrator of the tenant in the path"
    """A role in `adminRoles` of the tenant, or a superuser."""
    WITHIN_TENANT = "administrator of the tenant in the path, which must exist"
    """As TENANT; a missing tenant is answered with 404."""
    NAMESPACE_EXISTS = "an existing namespace"
    """Asked before the role, where Pulsar does so."""
    LIST_TOPICS = "produce or consume on the namespace"
    """Either action on the whole namespace."""
    LOOK_UP = "produce or consume on the topic"
    """Either action on the topic or on its namespace."""
    PRODUCE = "produce on the topic"
    """The action `produce` on the topic or on its namespace."""
    CONSUME = "consume on the topic, through the subscription in the path"
    """The action `consume`, and the right to the subscription where the path has one."""
    PACKAGES = "packages on the namespace"
    """The action `packages` on the namespace."""
    BODY = "administrator of the tenants that the body names; the handler checks it"
    """The handler checks the topics in the body; the table knows paths only."""


@dataclass(frozen=True, slots=True)
class Need:
    """One right, and the answer to a client without it."""

    right: Right
    """The right."""
    status: int = 401
    """HTTP status of the refusal; Apache answers 401 in some places and 403 in others."""
    only_with: str = ""
    """A switch of broker.conf. While it is false nothing is asked: each call gets the answer "not enabled"."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the table that have the same needs."""

    needs: tuple[Need, ...]
    """Checked in this order."""
    prefix: str
    """Begins the path of every row."""
    routes: str
    """One row per line: methods, or `*` for all, and the rest of the path. A rest that ends in `**` fits all below it."""


@dataclass(frozen=True, slots=True)
class RouteNeeds:
    """The needs of one route."""

    needs: tuple[Need, ...]
    """Checked in this order."""
    names: tuple[str, ...]
    """Names of the parts of the path that vary, in their order; those of the route may be other words."""


ROUTE_WITHOUT_ROW: Final = RouteNeeds((Need(Right.SUPERUSER),), ())
"""Holds for every route that the table lacks, so that a new route is closed until somebody decides."""

_PARAMETER: Final = re.compile(r"\{([^{}]*)\}")
_DOMAINS: Final = frozenset(("persistent", "non-persistent", "{domain}", "{topic-domain}"))
_ALL: Final = "*"
_BELOW: Final = "**"


class RightsTable:
    """Finds the row of a route."""

    def __init__(self, groups: Iterable[Rows]) -> None:
        """Raises ValueError for a route with two rows."""
        self._exact: dict[tuple[str, str], RouteNeeds] = {}
        self._below: list[tuple[str, RouteNeeds]] = []
        for group in groups:
            for methods, template in _lines(group):
                row = RouteNeeds(group.needs, tuple(_PARAMETER.findall(template)))
                if template.endswith(_BELOW):
                    self._below.append((_shape(template.removesuffix(_BELOW)), row))
                    continue
                for method in methods:
                    if (method, _shape(template)) in self._exact:
                        raise ValueError(f"{method} {template} has two rows")
                    self._exact[method, _shape(template)] = row

    def find(self, method: str, template: str) -> RouteNeeds | None:
        """Returns the row of a route by its method and its template; None for a route without one."""
        shape = _shape(template)
        # A HEAD runs the handler of GET.
        asked = "GET" if method == "HEAD" else method
        row = self._exact.get((asked, shape)) or self._exact.get((_ALL, shape))
        if row is not None:
            return row
        return next((row for start, row in self._below if shape.startswith(start)), None)


def parts_of_path(row: RouteNeeds, template: str, values: Mapping[str, str]) -> dict[str, str]:
    """Returns the varying parts of a request's path under the row's names.

    `template` and `values` are those of the route. Names are matched by their place, because a route may call a
    subscription `sub` where the table says `subscription`.
    """
    given = _PARAMETER.findall(_with_domain(template))
    parts = {name: values[its] for name, its in zip(row.names, given, strict=False) if its in values}
    if "domain" in row.names and "domain" not in parts:
        # The route has the domain as a fixed word.
        parts["domain"] = next(word for word in template.split("/") if word in _DOMAINS)
    return parts


def groups_of(needs: Mapping[str, tuple[Need, ...]], text: str) -> Iterator[Rows]:
    """Yields the groups of a table in text: `#` begins a comment, an empty line ends a group.

    The first line of a group has a key of `needs` and the prefix, the others are `Rows.routes`. KeyError.
    """
    for block in text.strip().split("\n\n"):
        heading, *routes = (line for line in block.split("\n") if not line.startswith("#"))
        name, _, prefix = heading.partition(" ")
        yield Rows(needs[name], prefix, "\n".join(routes))


def _lines(group: Rows) -> Iterator[tuple[list[str], str]]:
    for line in group.routes.split("\n"):
        *methods, rest = line.split()
        yield methods, group.prefix + ("" if rest == "." else rest)


def _with_domain(template: str) -> str:
    return "/".join("{domain}" if word in _DOMAINS else word for word in template.split("/"))


def _shape(template: str) -> str:
    """Returns the template with `{}` for every name, and with one word for both domains of topics."""
    words = ("{domain}" if word in _DOMAINS else _PARAMETER.sub("{}", word) for word in template.split("/"))
    return "/".join(words)
