"""The list of namespaces: topics, their rates and backlog, and policies that differ from the broker's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from broker.console.topic_rows import TOPICS_PER_SLICE
from broker.console.traffic import RATES, SUMMED, Traffic
from broker.service.namespaces.namespaces import Namespaces
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import POLICIES
from broker.service.topics.topic import Topic
from foundation.value import Json


async def namespaces_page(
    topics: Mapping[str, Topic], traffic: Traffic, namespaces: Namespaces, policies: EffectivePolicies
) -> dict[str, Json]:
    """Returns a row for each namespace; backlog is that of its open and dormant topics."""
    rows: dict[str, dict[str, float]] = {}
    for number, (name, topic) in enumerate([*topics.items()], 1):
        namespace = name.partition("://")[2].rpartition("/")[0]
        row = rows.setdefault(namespace, dict.fromkeys(("topics", *RATES, "backlog"), 0))
        row["topics"] += 1
        row["backlog"] += SUMMED["backlog"](topic)
        # More is counted than shown.
        for shown, rate in zip(RATES, traffic.rates(topic), strict=False):
            row[shown] += rate
        if number % TOPICS_PER_SLICE == 0:
            await asyncio.sleep(0)
    for number, (name, record) in enumerate(traffic.dormant, 1):
        namespace = name.partition("://")[2].rpartition("/")[0]
        row = rows.setdefault(namespace, dict.fromkeys(("topics", *RATES, "backlog"), 0))
        row["topics"] += 1
        row["backlog"] += record.backlog
        if number % TOPICS_PER_SLICE == 0:
            await asyncio.sleep(0)
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
