"""Rights of the routes that Pulsar does not have: the console's, those of the entry cache, the abort of a role's
transactions, and the API's own description.

The console's lists of topics and its stream answer every authenticated role: their handlers leave out what the role may
not see.
"""

from __future__ import annotations

from typing import Final

from broker.admin.rights.needs import Need, Right, Rows

_CONSOLE: Final = "/admin/v2/magnetar/console"
_TOPIC: Final = "{domain}/{tenant}/{namespace}/{topic}"

OWN_ROUTES: Final = (
    Rows(
        (Need(Right.AUTHENTICATED),),
        "",
        """
        GET /
        GET /console/{file}
        GET /openapi.json
        """,
    ),
    Rows(
        (Need(Right.AUTHENTICATED),),
        _CONSOLE,
        """
        GET /events
        GET /rights
        GET /session
        GET /topics
        """,
    ),
    Rows(
        (Need(Right.LOOK_UP),),
        f"{_CONSOLE}/topics/{_TOPIC}",
        """
        GET .
        """,
    ),
    Rows(
        (Need(Right.CONSUME),),
        f"{_CONSOLE}/messages/{_TOPIC}",
        """
        GET /ledger/{ledger}/entry/{entry}
        GET /subscription/{subscription}
        """,
    ),
    Rows(
        (Need(Right.SUPERUSER),),
        "/admin/v2/magnetar",
        """
        * /**
        """,
    ),
    Rows(
        (Need(Right.SUPERUSER),),
        "/admin/v3/transactions",
        """
        POST /abortTransactionsOfRole
        """,
    ),
)
"""All rows, by the right that they need."""
