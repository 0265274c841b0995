"""GroupShares: the rates of resource groups, divided among the brokers that use them.

Each broker that uses a group writes every SHARE_INTERVAL_S what it has used, and whether that was all it was allowed. From
what all brokers have written each computes its own share (`share_of`). Shares of one moment add up to the group's rate.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.cluster.members import put_own
from broker.service.limits.broker_limits import BrokerLimits, GroupLimits
from broker.service.limits.resource_groups import ResourceGroups
from broker.service.namespaces.stored_forms import dump
from broker.service.policies.values import ResourceGroupRates
from foundation.model.errors import BadVersion, BrokerError
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

USAGE: Final = "/loadbalance/magnetar-group-usage"
"""Below it a node for each broker that uses a group."""
SHARE_INTERVAL_S: Final = 2.0
"""Seconds between two looks at what the brokers use."""
HEADROOM: Final = 1.25
"""A broker that is not slowed down may use so many times of what it has used."""


class Demand(NamedTuple):
    """The use of one rate by one broker since its last look."""

    used: float = 0.0
    """Per second."""
    is_limited: bool = False
    """The rate has slowed it down: it would use more."""

    @property
    def wanted(self) -> float:
        """The most that it is likely to use next."""
        return math.inf if self.is_limited else self.used * HEADROOM


class GroupUse(NamedTuple):
    """The use of the four rates of a group, in the order of `ResourceGroupRates`."""

    publish_messages: Demand = Demand()
    """Messages that producers publish."""
    publish_bytes: Demand = Demand()
    """Their bytes."""
    dispatch_messages: Demand = Demand()
    """Messages that consumers get."""
    dispatch_bytes: Demand = Demand()
    """Their bytes."""


def share_of(rate: int, own: Demand, others: Sequence[Demand]) -> int:
    """Returns the part of a rate that a broker may use; `rate` 0 or less is no limit.

    Nobody gets more than it wants while another one gets less. The rest is divided evenly, so that a broker whose
    use grows meets a limit late, and a broker that begins has something.
    """
    if rate <= 0:
        return rate
    left, given = float(rate), 0.0
    wanted = sorted(demand.wanted for demand in (own, *others))
    for index, one in enumerate(wanted):
        part = min(one, left / (len(wanted) - index))
        left -= part
        if one == own.wanted:
            given = part
    return max(1, int(given + left / len(wanted)))


class GroupShares:
    """Sets the shares of this broker; `tick` is called every SHARE_INTERVAL_S."""

    def __init__(
        self, store: MetadataStore, groups: ResourceGroups, limits: BrokerLimits, broker: str
    ) -> None:
        """`broker`: the name of this one."""
        self._store = store
        self._groups = groups
        self._limits = limits
        self._key = f"{USAGE}/{broker}"
        self._looked_ns = limits.now_ns()
        self._counts: dict[str, tuple[int, ...]] = {}
        """Counts of each group at the last look."""
        self._is_written = False

    async def tick(self) -> None:
        """Writes what this broker uses, reads what the others use, and takes its shares. Costs nothing without use."""
        usages = self._used()
        if not usages and not self._is_written:
            return
        try:
            await self._write(usages)
            others = await self._read()
        except (BrokerError, ValueError) as error:
            # The shares stay as they were.
            log.warning("! shares of resource groups cannot be computed: %s", error)
            return
        for name in self._groups.names():
            group = self._limits.group(name)
            if group is not None:
                using = [found[name] for found in others if name in found]
                share = _share(self._groups.get(name), usages.get(name, GroupUse()), using)
                group.take_share(share, self._limits.now_ns())

    def _used(self) -> dict[str, GroupUse]:
        """Returns the use of each group since the last call, without those that nobody here uses."""
        now_ns = self._limits.now_ns()
        seconds = max(1, now_ns - self._looked_ns) / NS_PER_SECOND
        self._looked_ns = now_ns
        used: dict[str, GroupUse] = {}
        before, self._counts = self._counts, {}
        for name in self._groups.names():
            group = self._limits.group(name)
            if group is None:
                continue
            counts = self._counts[name] = _counts_of(group)
            since = [now - then for now, then in zip(counts, before.get(name, counts), strict=True)]
            if any(since):
                *rates, published_late, delivered_late = since
                demands = [count / seconds for count in rates]
                used[name] = GroupUse(
                    *(Demand(one, published_late > 0) for one in demands[:2]),
                    *(Demand(one, delivered_late > 0) for one in demands[2:]),
                )
        return used

    async def _write(self, usages: Mapping[str, GroupUse]) -> None:
        node = await self._store.get(self._key)
        self._is_written = bool(usages)
        if not usages:
            if node is not None:
                await self._store.delete(self._key)
            return
        value = dump({name: [[*demand] for demand in usage] for name, usage in usages.items()})
        if node is None:
            await put_own(self._store, self._key, value)
        else:
            try:
                # With its version: a node that the end of its session removed must not be made without one.
                await self._store.put(self._key, value, node.version)
            except BadVersion:
                await put_own(self._store, self._key, value)

    async def _read(self) -> list[dict[str, GroupUse]]:
        """Returns what the other brokers have written."""
        found = []
        for name in await self._store.children(USAGE):
            key = f"{USAGE}/{name}"
            node = None if key == self._key else await self._store.get(key)
            if node is not None:
                found.append(_decoded(node.value))
        return found


def _decoded(value: bytes) -> dict[str, GroupUse]:
    """Raises ValueError."""
    found = json.loads(value)
    try:
        return {
            str(name): GroupUse(*(Demand(float(used), bool(is_limited)) for used, is_limited in usage))
            for name, usage in found.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the use of resource groups cannot be read: {error}") from error


def _counts_of(group: GroupLimits) -> tuple[int, ...]:
    publish, dispatch = group
    return (
        publish.messages_counted,
        publish.bytes_counted,
        dispatch.messages_counted,
        dispatch.bytes_counted,
        publish.throttled,
        dispatch.throttled_by_messages + dispatch.throttled_by_bytes,
    )


def _share(rates: ResourceGroupRates, own: GroupUse, others: Sequence[GroupUse]) -> ResourceGroupRates:
    columns = zip(*others, strict=True) if others else [()] * len(own)
    limits = (
        rates.publish_messages,
        rates.publish_bytes,
        rates.dispatch_messages,
        rates.dispatch_bytes,
    )
    return ResourceGroupRates(
        *(share_of(rate, used, column) for rate, used, column in zip(limits, own, columns, strict=True))
    )
