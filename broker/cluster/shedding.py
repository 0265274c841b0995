"""Shedding: the bundles that a busy broker shall give to others, after Apache's `ThresholdShedder`. Pure functions.

Each broker has an average of its use (`Load.used`), in which the past weighs `loadBalancerHistoryResourcePercentage`. One
that is above the average of all by more than `loadBalancerBrokerThresholdShedderPercentage` sheds enough of its traffic to
come 5 points below that limit: its bundles with most bytes per second first, none that was moved lately, and nothing
where the traffic is less than `loadBalancerBundleUnloadMinThroughputThreshold`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.loads import BrokerLoad, BundleAverage

MARGIN: Final = 0.05
"""A broker is brought this much below the limit."""
LOWER_MARGIN: Final = 0.5
"""The part of the excess that the busiest broker sheds because another one has little to do."""
_OWN: Final = re.compile("(pulsar|sla-monitor)/(.*/)?[^/]+:[0-9]+")
"""Namespaces by which each broker is watched: no other broker can have them."""


def may_move(bundle: str) -> bool:
    """Returns False for a bundle of a broker's own namespace."""
    return _OWN.fullmatch(bundle.rpartition("/")[0]) is None


class Shed(NamedTuple):
    """One round."""

    usages: dict[str, float]
    """The averages of the brokers' use after it."""
    average: float
    """The average over all brokers."""
    bundles: dict[str, list[str]]
    """Bundles to be moved, by their brokers, those with most traffic first."""


def shed(
    usages: Mapping[str, float],
    loads: Mapping[str, BrokerLoad],
    averages: Mapping[str, BundleAverage],
    recent: Container[str],
    settings: BalanceSettings,
) -> Shed:
    """Returns the bundles that brokers with too much to do shall lose.

    `usages`: of the last round. `averages`: of the bundles that may move. `recent`: bundles that were moved lately.
    """
    usages = _after(usages, loads, settings)
    average = _mean(usages)
    found: dict[str, list[str]] = {}
    if average == 0:
        return Shed(usages, average, found)
    threshold = settings.threshold
    for broker, load in loads.items():
        excess = usages[broker] - average - threshold
        wanted = load.total.throughput * (excess + MARGIN)
        if excess >= 0 and wanted >= settings.throughput_least and len(load.bundles) > 1:
            found[broker] = _largest(load, averages, recent, wanted)
    found = {broker: bundles for broker, bundles in found.items() if bundles}
    if not found and settings.lower_boundary:
        # The past is taken in once more, as in Apache.
        usages = _after(usages, loads, settings)
        average = _mean(usages)
        busiest = _busiest(usages, loads)
        if busiest and min(usages.values()) < average - threshold:
            wanted = loads[busiest].total.throughput * threshold * LOWER_MARGIN
            if wanted >= settings.throughput_least:
                bundles = _largest(loads[busiest], averages, recent, wanted)
                found = {busiest: bundles} if bundles else {}
    return Shed(usages, average, found)


def _after(
    usages: Mapping[str, float], loads: Mapping[str, BrokerLoad], settings: BalanceSettings
) -> dict[str, float]:
    history = settings.history
    return {
        broker: usages.get(broker, 0.0) * history + (1 - history) * load.used(settings.weights)
        if broker in usages
        else load.used(settings.weights)
        for broker, load in loads.items()
    }


def _mean(usages: Mapping[str, float]) -> float:
    return sum(usages.values()) / len(usages) if usages else 0.0


def _busiest(usages: Mapping[str, float], loads: Mapping[str, BrokerLoad]) -> str:
    """Returns the broker with most to do among those that have several bundles."""
    several = [broker for broker, load in loads.items() if len(load.bundles) > 1 and usages[broker] > 0]
    return max(several, key=lambda broker: usages[broker], default="")


def _largest(
    load: BrokerLoad, averages: Mapping[str, BundleAverage], recent: Container[str], wanted: float
) -> list[str]:
    """Returns the largest bundles that have the wanted throughput together, one at least."""
    sizes = {
        bundle: averages[bundle].short.throughput
        for bundle in load.bundles
        if bundle in averages and bundle not in recent
    }
    found: list[str] = []
    marked = 0.0
    for bundle in sorted(sizes, key=lambda one: -sizes[one]):
        if found and marked >= wanted:
            break
        found.append(bundle)
        marked += sizes[bundle]
    return found
