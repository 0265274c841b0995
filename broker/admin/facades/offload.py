"""Thresholds and lag of offloading of a namespace: members of its offload policies that have routes of their own.

`broker/service/policies/offload.py` says what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from aiohttp import web

from broker.admin.http.answers import body_of
from broker.admin.policy_owner import existing_namespace
from broker.admin.service_view import BROKER
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.offload.tier import NOT_FOUND, UNKNOWN, ScannedObject
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import ANY_LONG, named
from broker.service.policies.table import OFFLOAD_POLICIES
from broker.service.topics.topic_registry import offload_rules_of
from foundation.model.topic_name import parse_topic_name


class Number(NamedTuple):
    """A number of the offload policies."""

    word: str
    """Last word of its path."""
    older: str
    """Key in Pulsar's JSON of a namespace that older tools send in place of `offload_policies`."""
    member: str
    """Name in the offload policies."""
    unset: int | None
    """Value that is shown where it is not set; None shows nothing."""

    async def show(self, request: web.Request) -> Json:
        """Returns a number of the offload policies."""
        policies = request.app[BROKER].namespaces.policies(existing_namespace(request))
        return _members(policies.get(OFFLOAD_POLICIES.name)).get(self.member, self.unset)

    async def store(self, request: web.Request) -> None:
        """Sets a number of the offload policies; `null` removes it."""
        given = await body_of(request)
        await self._put(request, None if given is None else _read(self.word, given))

    async def remove(self, request: web.Request) -> None:
        """Removes a number of the offload policies, and leaves the others."""
        await self._put(request, None)

    async def _put(self, request: web.Request, value: Json) -> None:
        def changed(stored: Json) -> Json:
            members = {**_members(stored), self.member: value}
            return OFFLOAD_POLICIES.form.write(OFFLOAD_POLICIES.form.read(members))

        namespace = existing_namespace(request)
        await request.app[BROKER].namespaces.change_policy(namespace, OFFLOAD_POLICIES.name, changed)


SIZE: Final = Number("offloadThreshold", "offload_threshold", "managedLedgerOffloadThresholdInBytes", -1)
"""Bytes of a topic above which its oldest ledgers are moved."""
AGE: Final = Number(
    "offloadThresholdInSeconds", "offload_threshold_in_seconds", "managedLedgerOffloadThresholdInSeconds", -1
)
"""Age at which ledgers are moved."""
LAG: Final = Number(
    "offloadDeletionLagMs", "offload_deletion_lag_ms", "managedLedgerOffloadDeletionLagInMillis", None
)
"""Time for which a moved ledger stays in the bookies."""


def add_older_members(policies: dict[str, Json], body: Mapping[str, Json]) -> None:
    """Adds the older keys in the JSON of a namespace that is to be created to its policies. Raises WrongType."""
    given: dict[str, Json] = {
        one.member: _read(one.older, body[one.older])
        for one in (SIZE, AGE, LAG)
        if body.get(one.older) is not None
    }
    if given:
        newer = policies.get(OFFLOAD_POLICIES.name)
        members = {**given, **newer} if isinstance(newer, dict) else given
        policies[OFFLOAD_POLICIES.name] = OFFLOAD_POLICIES.form.write(OFFLOAD_POLICIES.form.read(members))


async def remove_policies(request: web.Request) -> None:
    """Removes all offload policies, the thresholds and the lag included."""
    await request.app[BROKER].namespaces.set_policy(existing_namespace(request), OFFLOAD_POLICIES.name, None)


async def scan(request: web.Request) -> Json:
    """Returns the objects in the storage of a namespace, each with whether a list of ledgers names it.

    `NOT-FOUND` is left over: its index says that the namespace has it, and no list does. `UNKNOWN` has no index: another
    namespace may be copying it at the moment, or has left it over.
    """
    broker, namespace = request.app[BROKER], existing_namespace(request)
    metadata = broker.environment.metadata
    # The rules of a topic without policies of its own.
    rules = offload_rules_of(broker.registry, parse_topic_name(f"persistent://{namespace}/any"))
    if not rules.place.driver:
        return {"objects": [], "total": 0, "errors": 0, "unknown": 0}
    # Before the objects: one that is written meanwhile is then at worst unknown.
    named: dict[UUID, bool] = {}
    for topic in await broker.registry.names(namespace, non_persistent=False):
        stored = await metadata.get(managed_ledger_key(parse_topic_name(topic).ledger_name))
        info = ManagedLedgerInfo() if stored is None else decode_ledger_list(stored.value)
        named |= {one.offload.uuid: one.offload.complete for one in info.ledgers if one.offload is not None}
        named |= {one.uuid: False for one in info.deleting_objects}
    tier = broker.environment.open_tier()
    found = [one async for one in tier.scan(rules.place, namespace, named)]
    return {
        "objects": [_shown(one) for one in found],
        "total": len(found),
        "errors": sum(one.status == NOT_FOUND for one in found),
        "unknown": sum(one.status == UNKNOWN for one in found),
    }


def _shown(one: ScannedObject) -> dict[str, Json]:
    return {
        "ledger": one.ledger_id,
        "name": one.key,
        "uri": one.uri,
        "uuid": str(one.uuid),
        "size": one.size_bytes,
        "lastModified": one.modified_ms,
        "managedLedgerName": one.owner,
        "status": one.status,
    }


def _read(name: str, given: Json) -> int:
    with named(name):
        return ANY_LONG.read(given)


def _members(stored: Json) -> dict[str, Json]:
    return stored if isinstance(stored, dict) else {}
