"""The rows of the console in the table of rights.

Its other data, about the whole broker, need a superuser as everything below `/admin/v2/magnetar` does.
"""

from __future__ import annotations

from typing import Final

from broker.admin.rights.needs import Need, Right, Rows

_TOPIC: Final = "{domain}/{tenant}/{namespace}/{topic}"

CONSOLE_ROWS: Final = (
    # Files without data; and data that the handlers cut to what the role may see.
    Rows(
        (Need(Right.AUTHENTICATED),),
        "",
        """
        GET /
        GET /console/{file}
        GET /admin/v2/magnetar/console/events
        GET /admin/v2/magnetar/console/rights
        GET /admin/v2/magnetar/console/session
        GET /admin/v2/magnetar/console/topics
        """,
    ),
    Rows(
        (Need(Right.LOOK_UP),),
        f"/admin/v2/magnetar/console/topics/{_TOPIC}",
        """
        GET .
        """,
    ),
    Rows(
        (Need(Right.CONSUME),),
        f"/admin/v2/magnetar/console/messages/{_TOPIC}",
        """
        GET /ledger/{ledger}/entry/{entry}
        GET /subscription/{subscription}
        """,
    ),
)
"""The rows."""
