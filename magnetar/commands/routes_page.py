"""Makes `docs/reference/admin_routes.md`: Pulsar's routes, with those that are not served; `generate.py` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from broker.admin.http.pulsar_routes import PulsarRoute, pulsar_routes, unserved
from broker.admin.server import routes

INTRODUCTION: Final = """\
# Routes of the admin interface

Written by `make generate` from `broker/admin/http/pulsar_routes.tsv`, which has the routes of the broker of Apache
Pulsar 4.2.4, and from the routes of the code.

A request that Magnetar does not serve is answered with 501 and `{"reason": …}`. Functions, sources, sinks and packages
are answered as by a Pulsar broker that does not enable them. Paths that Pulsar lacks get a 404 page.
[Policies](policies.md) has the effect of each policy.

A running broker describes its routes in OpenAPI 3.1: `curl http://localhost:8080/openapi.json`. WebSockets are left out,
which OpenAPI cannot describe.
"""


def routes_page() -> str:
    """Returns the page."""
    missing = unserved(routes())
    served = [route for route in pulsar_routes() if route not in missing]
    return "\n".join(
        [
            INTRODUCTION,
            f"## Not served ({len(missing)} of {len(missing) + len(served)})\n",
            *_table(missing),
            f"\n## Served ({len(served)})\n",
            *_table(served),
            "",
        ]
    )


def _table(rows: Iterable[PulsarRoute]) -> Iterator[str]:
    methods: dict[str, list[str]] = defaultdict(list)
    for method, path in rows:
        methods[path].append(method)
    yield "| path | methods |\n|---|---|"
    for path, names in methods.items():
        yield f"| `{path}` | {', '.join(names)} |"
