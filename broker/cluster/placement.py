"""Placement: the broker that shall have a bundle, after Apache's `LeastLongTermMessageRate`. Pure functions.

Each step leaves fewer candidates:

    permitted       by isolation policies (`isolation.py`)
    few topics      at most loadBalancerBrokerMaxTopics, unless all have more
    apart           the fewest namespaces of the same anti-affinity group, first by failure domain, then by broker
    even            the fewest bundles of the same namespace (loadBalancerDistributeBundlesEvenlyEnabled)
    least loaded    the lowest rate of messages over a long term, with that of bundles on their way; overloaded ones last
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

DEFAULT_DOMAIN: Final = "default"
"""The failure domain of brokers without one."""


def with_few_topics(candidates: Iterable[str], topics: Mapping[str, int], most: int) -> set[str]:
    """Returns the brokers with at most `most` topics, or all where each has more."""
    every = set(candidates)
    return {one for one in every if topics.get(one, 0) <= most} or every


def apart(candidates: Iterable[str], counts: Mapping[str, int], domains: Mapping[str, str]) -> set[str]:
    """Returns the brokers that keep the namespaces of an anti-affinity group apart.

    `counts`: namespaces of the group by broker. `domains`: failure domains by broker; empty = not obeyed.
    """
    found = set(candidates)
    if domains:
        sums: Counter[str] = Counter()
        for one in found:
            sums[domains.get(one, DEFAULT_DOMAIN)] += counts.get(one, 0)
        least = min(sums.values(), default=0)
        found = {one for one in found if sums[domains.get(one, DEFAULT_DOMAIN)] == least}
    return fewest(found, counts)


def fewest(candidates: Iterable[str], counts: Mapping[str, int]) -> set[str]:
    """Returns the candidates that have the least number."""
    every = set(candidates)
    least = min((counts.get(one, 0) for one in every), default=0)
    return {one for one in every if counts.get(one, 0) == least}


def least_loaded(
    candidates: Iterable[str], used: Mapping[str, float], rates: Mapping[str, float], overloaded: float
) -> set[str]:
    """Returns the brokers with the lowest rate, or all where each uses more than `overloaded`, 1 for everything."""
    every = set(candidates)
    scores = {one: inf if used.get(one, 0.0) > overloaded else rates.get(one, 0.0) for one in every}
    least = min(scores.values(), default=inf)
    return {one for one in every if scores[one] == least}
