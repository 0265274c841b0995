"""Recorded answers to roles that this broker does not give, each with the reason.

Law of the place: as in `explained.py`. Most entries say where this broker is stricter than Apache and why;
docs/compatibility.md says the same at length; a test compares the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BY_REASON: Final[Mapping[str, str]] = {
    "/metrics is answered at once, without a redirect to /metrics/.": "GET /metrics",
    "Apache knows this route under another query only, and answers that it is missing; here transactions are off.": """
        GET /admin/v3/transactions/transactionBufferInternalStats/t1/ns1/top1
    """,
    "In Apache a consumer may drop the backlog of a whole namespace; here only the tenant's administrator may.": """
        POST /admin/v2/namespaces/public/default/0x00000000_0x40000000/clearBacklog
        POST /admin/v2/namespaces/public/default/0x00000000_0x40000000/clearBacklog/subx
    """,
    "Apache says to every role that entries have no index; here a role without the right learns nothing.": """
        GET /admin/v2/persistent/public/default/top1/getMessageIdByIndex?index=0
        GET /admin/v2/persistent/t1/ns1/top1/getMessageIdByIndex?index=0
    """,
    "Apache fails with an error of its own code (500) for every role; here only an administrator is served.": """
        GET /admin/v2/namespaces/standalone/antiAffinity/g1?tenant=t1
        GET /admin/v2/namespaces/public/default/scanOffloadedLedgers
        GET /admin/v2/namespaces/t1/ns1/scanOffloadedLedgers
    """,
    "Apache answers 200 with an empty list once a topic has ever had a policy, and 204 before; here always 204.": """
        GET /admin/v2/persistent/public/default/pol1/subscriptionTypesEnabled
    """,
}

EXPLAINED_ROLES: Final[Mapping[str, str]] = {
    name.strip(): reason
    for reason, names in _BY_REASON.items()
    for name in names.splitlines()
    if name.strip()
}
"""Ids of rest.jsonl."""

_SCHEMA_READ: Final = "Every client may read every schema in Apache; here it needs a right to the topic."
_SCHEMA_WRITE: Final = (
    "Every client may add a schema to every topic in Apache; here it needs the right to produce."
)
EXPLAINED_COMMANDS: Final[Mapping[str, str]] = {
    "get-schema public/default/nosuch (no such topic)": _SCHEMA_READ,
    "get-schema public/default/tg1 (topic grant)": _SCHEMA_READ,
    "get-or-create-schema public/default/sch1": _SCHEMA_WRITE,
    "get-or-create-schema t1/ns1/gocmissing (no such topic)": _SCHEMA_WRITE,
}
"""Ids of wire.jsonl."""
