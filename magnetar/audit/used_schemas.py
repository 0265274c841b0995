"""Tells schemas of non-persistent topics, which no node of a metadata store names, from schemas without a topic."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from bookkeeper.leaks import rules
from magnetar.audit.facts import AuditFinding
from magnetar.clients.admin_client import AdminAddress, ask
from magnetar.clients.client import CommandError

_PARTITION: Final = re.compile(rules.PARTITION)


def without_used_schemas(found: list[AuditFinding], address: AdminAddress) -> list[AuditFinding]:
    """Returns the findings without schemas that open non-persistent topics use. Raises CommandError.

    The broker is asked once per namespace with such a finding.
    """
    used = set[str]()
    for namespace in sorted({_namespace(one) for one in found if _is_open(one)}):
        used |= _used_in(namespace, address)
    return [one for one in found if not (_is_open(one) and f"non-{one.topic}" in used)]


def _is_open(one: AuditFinding) -> bool:
    return one.topic is not None and one.reason == rules.NO_PERSISTENT_TOPIC


def _namespace(one: AuditFinding) -> str:
    return "/".join((one.topic or "").removeprefix("persistent://").split("/")[:2])


def _used_in(namespace: str, address: AdminAddress) -> set[str]:
    """Returns the namespace's open non-persistent topics; partitions under the name of their topic, as schemas have it."""
    topics = ask(address, "GET", f"/admin/v2/non-persistent/{quote(namespace)}").body
    if not isinstance(topics, list):
        raise CommandError(f"the answer of {address.url} about the topics of {namespace} is not understood")
    names = [topic for topic in topics if isinstance(topic, str)]
    return {match[1] if (match := _PARTITION.match(name)) else name for name in names}
