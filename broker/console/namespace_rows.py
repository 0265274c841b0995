"""The list of namespaces: open topics, their rates and backlog, and the policies that each namespace sets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from broker.console.topic_rows import RATES, TOPICS_PER_SLICE, backlog_of
from broker.console.traffic import Traffic
from broker.service.namespaces.namespaces import Json, Namespaces
from broker.service.policies.table import POLICIES
from broker.service.topics.topic import Topic

_TITLES: Final = {policy.name: policy.title for policy in POLICIES if policy.name}
"""Titles of the policies by the keys under which a namespace stores them."""


async def namespaces_page(
    topics: Mapping[str, Topic], traffic: Traffic, namespaces: Namespaces
) -> dict[str, Json]:
    """Returns a row for each namespace; rates and backlog are those of its open topics."""
    rows: dict[str, dict[str, float]] = {}
    for number, (name, topic) in enumerate([*topics.items()], 1):
        namespace = name.partition("://")[2].rpartition("/")[0]
        row = rows.setdefault(namespace, dict.fromkeys(("topics", *RATES, "backlog"), 0))
        row["topics"] += 1
        row["backlog"] += backlog_of(topic)
        rates = traffic.rates(topic)
        for shown, place in RATES.items():
            row[shown] += rates[place]
        if number % TOPICS_PER_SLICE == 0:
            await asyncio.sleep(0)
    none = dict.fromkeys(("topics", *RATES, "backlog"), 0.0)
    shown_rows: list[Json] = []
    for tenant in namespaces.tenants():
        for one in namespaces.names(tenant):
            policies: dict[str, Json] = {
                _TITLES[name]: value for name, value in namespaces.policies(one).items() if name in _TITLES
            }
            shown_rows.append({"namespace": one, **rows.get(one, none), "policies": policies})
        await asyncio.sleep(0)
    return {"windowSeconds": traffic.interval_s, "namespaces": shown_rows}
