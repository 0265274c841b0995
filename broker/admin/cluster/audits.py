"""`/admin/v2/magnetar/audit`: takes the result of `magnetar admin audit`, which metrics show until the next one."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadRequest, done, object_of, whole_number
from broker.admin.service_view import BROKER

CLASSES_MAX: Final = 50
"""Classes in one result; each is a series of its own."""
_CLASS: Final = re.compile(r"[a-z][a-z-]{0,49}")


async def told(request: web.Request) -> web.Response:
    """Takes `{"findings": {class: count}}`; 400 for anything else."""
    broker, body = request.app[BROKER], await object_of(request)
    findings = body.get("findings")
    if not isinstance(findings, dict) or len(findings) > CLASSES_MAX:
        raise BadRequest(f"findings: an object with at most {CLASSES_MAX} classes is needed")
    for name in findings:
        if not _CLASS.fullmatch(name):
            raise BadRequest(f"findings: {name[:50]!r} is no class of an audit")
    counts = {name: whole_number(count, name) for name, count in findings.items()}
    if min(counts.values(), default=0) < 0:
        raise BadRequest("findings: a count is 0 or more")
    broker.last_audit.told(counts, broker.environment.wall_ms())
    return done()


AUDIT_ROUTES = (web.post("/admin/v2/magnetar/audit", told),)
"""The routes."""
