"""The list of namespaces: topics, their rates and backlog, and policies that differ from the broker's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker.console.traffic import RATES, Traffic
from broker.service.namespaces.namespaces import Namespaces
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import POLICIES
from foundation.value import Json


async def namespaces_page(
    traffic: Traffic, namespaces: Namespaces, policies: EffectivePolicies
) -> dict[str, Json]:
    """Returns a row for each namespace; backlog is that of its open and dormant topics."""
    for _ in traffic.read_changes():
        await asyncio.sleep(0)
    rows = traffic.by_namespace()
    none = dict.fromkeys(("topics", *RATES, "backlog"), 0.0)
    shown_rows: list[Json] = []
    for tenant in namespaces.tenants():
        for one in namespaces.names(tenant):
            differing = dict(_differing(one, policies))
            shown_rows.append({"namespace": one, **rows.get(one, none), "policies": differing})
        await asyncio.sleep(0)
    return {"windowSeconds": traffic.interval_s, "filling": traffic.dormant.filling, "namespaces": shown_rows}


def _differing(namespace: str, policies: EffectivePolicies) -> Iterator[tuple[str, Json]]:
    """Yields title and value of the policies whose value is not the broker's."""
    for policy in POLICIES:
        value = policies.differing(namespace, policy)
        if value is not None:
            yield policy.title, policy.form.write(value)
