"""Splitting: the bundles that are divided because they have too much of something, after Apache's `BundleSplitterTask`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.loads import BrokerLoad, BundleAverage


def too_large(
    loads: Iterable[BrokerLoad],
    averages: Mapping[str, BundleAverage],
    counts: Mapping[str, int],
    settings: BalanceSettings,
) -> dict[str, str]:
    """Returns the bundles to be divided, each with the reason. `counts`: bundles of each namespace."""
    found: dict[str, str] = {}
    added: Counter[str] = Counter()
    for load in loads:
        for bundle, one in load.bundles.items():
            average = averages.get(bundle)
            rate, throughput = (average.long.rate, average.long.throughput) if average else (0.0, 0.0)
            if one.topics < 2:
                continue  # No division would take anything away from it.
            if one.topics > settings.bundle_topics:
                why = f"{one.topics} topics"
            elif 0 < settings.bundle_sessions < one.sessions:
                why = f"{one.sessions} producers and consumers"
            elif rate > settings.bundle_rate:
                why = f"{rate:.0f} messages a second"
            elif throughput > settings.bundle_throughput:
                why = f"{throughput / (1 << 20):.1f} MiB a second"
            else:
                continue
            namespace = bundle.rpartition("/")[0]
            if counts.get(namespace, 0) + added[namespace] < settings.namespace_bundles:
                added[namespace] += 1
                found[bundle] = why
    return found
