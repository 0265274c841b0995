"""Makes `docs/reference/admin_routes.md`: Pulsar's routes, all of which are served; `generate.py` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from broker.admin.http.pulsar_routes import PulsarRoute, pulsar_routes

INTRODUCTION: Final = """\
# Routes of the admin interface

Written by `make generate` from `broker/admin/http/pulsar_routes.tsv`, which has the routes of the broker of Apache
Pulsar 4.2.4. Magnetar serves all of them.

Functions, sources, sinks and packages are answered as by a Pulsar broker that does not enable them. A value that asks
for a feature which is not built, such as replication to another cluster, is answered with 501 and `{"reason": …}`. Paths
that Pulsar lacks get a 404 page.
[Policies](policies.md) has the effect of each policy.

A running broker describes its routes in OpenAPI 3.1: `curl http://localhost:8080/openapi.json`. WebSockets are left out,
which OpenAPI cannot describe.
"""


def routes_page() -> str:
    """Returns the page."""
    return "\n".join([INTRODUCTION, f"## Served ({len(pulsar_routes())})\n", *_table(pulsar_routes()), ""])


def _table(rows: Iterable[PulsarRoute]) -> Iterator[str]:
    methods: dict[str, list[str]] = defaultdict(list)
    for method, path in rows:
        methods[path].append(method)
    yield "| path | methods |\n|---|---|"
    for path, names in methods.items():
        yield f"| `{path}` | {', '.join(names)} |"
