"""Loads of brokers and bundles, as load reports tell them, and their averages over time. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from math import inf
from typing import Final, NamedTuple

from foundation.value import Value

SHORT_SAMPLES: Final = 10
"""Samples that an average of a short term weighs, as in Apache."""
LONG_SAMPLES: Final = 1000
"""Samples that an average of a long term weighs, as in Apache."""


class ResourceUse(NamedTuple):
    """The use of one resource."""

    usage: float = 0.0
    """The used amount, in the resource's unit."""
    limit: float = 0.0
    """The whole amount; 0 or less where it is not known."""

    @property
    def share(self) -> float:
        """The used part, 1 for all; 0 where the limit is not known."""
        return self.usage / self.limit if self.limit > 0 else 0.0


class BundleLoad(NamedTuple):
    """The load of one bundle. Pulsar's name: NamespaceBundleStats."""

    rate_in: float = 0.0
    """Messages per second from producers."""
    throughput_in: float = 0.0
    """Bytes per second from producers."""
    rate_out: float = 0.0
    """Messages per second to consumers."""
    throughput_out: float = 0.0
    """Bytes per second to consumers."""
    consumers: int = 0
    """Connected consumers."""
    producers: int = 0
    """Connected producers."""
    topics: int = 0
    """Topics, also dormant ones."""
    cache_bytes: int = 0
    """Cached bytes of its topics."""

    @property
    def rate(self) -> float:
        """Messages per second in both directions."""
        return self.rate_in + self.rate_out

    @property
    def throughput(self) -> float:
        """Bytes per second in both directions."""
        return self.throughput_in + self.throughput_out

    @property
    def sessions(self) -> int:
        """Connected producers and consumers."""
        return self.consumers + self.producers


NO_LOAD: Final = BundleLoad()
"""The load of a bundle without topics in use."""


def bundle_load(numbers: Sequence[float]) -> BundleLoad:
    """Returns the load with these numbers, in the order of the fields."""
    rate_in, throughput_in, rate_out, throughput_out, *counts = numbers
    consumers, producers, topics, cache_bytes = map(int, counts)
    rates = rate_in, throughput_in, rate_out, throughput_out
    return BundleLoad(*rates, consumers, producers, topics, cache_bytes)


UNSEEN: Final = BundleLoad(50.0, 50_000.0, 50.0, 50_000.0)
"""The load that Apache takes for that of a bundle which no report has shown yet."""


class Weights(NamedTuple):
    """The weight of each resource in the use of a broker; memory has none, as in Apache 4.2."""

    cpu: float = 1.0
    """`loadBalancerCPUResourceWeight`."""
    direct_memory: float = 1.0
    """`loadBalancerDirectMemoryResourceWeight`."""
    bandwidth_in: float = 1.0
    """`loadBalancerBandwidthInResourceWeight`."""
    bandwidth_out: float = 1.0
    """`loadBalancerBandwidthOutResourceWeight`."""


EQUAL_WEIGHTS: Final = Weights()
"""Those of `maxResourceUsage` in a load report."""


class BrokerLoad(Value):
    """The load of one broker."""

    cpu: ResourceUse = ResourceUse()
    """Percent of one core."""
    memory: ResourceUse = ResourceUse()
    """MiB."""
    direct_memory: ResourceUse = ResourceUse()
    """MiB of what is kept outside of Java's heap; here the entry cache."""
    bandwidth_in: ResourceUse = ResourceUse()
    """Kilobits per second."""
    bandwidth_out: ResourceUse = ResourceUse()
    """Kilobits per second."""
    bundles: Mapping[str, BundleLoad] = field(default_factory=dict)
    """By `tenant/namespace/range`."""

    @property
    def total(self) -> BundleLoad:
        """The sum over the bundles."""
        return BundleLoad(*map(sum, zip(*self.bundles.values(), strict=True))) if self.bundles else NO_LOAD

    def with_bundles(self, bundles: Mapping[str, BundleLoad]) -> BrokerLoad:
        """Returns the load with other bundles."""
        return BrokerLoad(
            self.cpu, self.memory, self.direct_memory, self.bandwidth_in, self.bandwidth_out, bundles
        )

    def used(self, weights: Weights = EQUAL_WEIGHTS) -> float:
        """Returns the share of the most used resource, each times its weight."""
        return max(
            self.cpu.share * weights.cpu,
            self.direct_memory.share * weights.direct_memory,
            self.bandwidth_in.share * weights.bandwidth_in,
            self.bandwidth_out.share * weights.bandwidth_out,
        )


def differs(before: BrokerLoad, now: BrokerLoad, weights: Weights, change: float) -> bool:
    """Returns True where a number has changed by more than the part `change`: what a new report is written for."""
    old, new = before.total, now.total
    return (
        _changed(old.rate, new.rate) > change
        or _changed(old.throughput, new.throughput) > change
        or _changed(len(before.bundles), len(now.bundles)) > change
        # Unlike Apache's: bundles are divided by these, and a report may otherwise be of before clients came back.
        or _changed(old.topics, new.topics) > change
        or _changed(old.sessions, new.sessions) > change
        or abs(before.used(weights) - now.used(weights)) > change
    )


def _changed(before: float, now: float) -> float:
    if before == 0:
        return 0.0 if now == 0 else inf
    return abs((before - now) / before)


class Average(NamedTuple):
    """Rates and throughputs over some samples, older ones weighing less. Pulsar's name: TimeAverageMessageData."""

    samples_max: int
    """Samples after which each new one has the weight 1 / samples_max."""
    samples: int
    """Samples so far, `samples_max` at most."""
    throughput_in: float
    """Bytes per second from producers."""
    throughput_out: float
    """Bytes per second to consumers."""
    rate_in: float
    """Messages per second from producers."""
    rate_out: float
    """Messages per second to consumers."""

    @property
    def rate(self) -> float:
        """Messages per second in both directions."""
        return self.rate_in + self.rate_out

    @property
    def throughput(self) -> float:
        """Bytes per second in both directions."""
        return self.throughput_in + self.throughput_out

    def after(self, load: BundleLoad) -> Average:
        """Returns the average with one more sample."""
        count = min(self.samples + 1, self.samples_max)
        sample = load.throughput_in, load.throughput_out, load.rate_in, load.rate_out
        found = (((count - 1) * old + new) / count for old, new in zip(self[2:], sample, strict=True))
        return Average(self.samples_max, count, *found)


class BundleAverage(NamedTuple):
    """The averages of a bundle. Pulsar's name: BundleData."""

    short: Average
    """Over a few samples."""
    long: Average
    """Over many."""
    topics: int = 0
    """Topics at the last sample."""

    def after(self, load: BundleLoad) -> BundleAverage:
        """Returns the averages with one more sample."""
        return BundleAverage(self.short.after(load), self.long.after(load), load.topics)


def _begun(samples_max: int) -> Average:
    return Average(
        samples_max, 0, UNSEEN.throughput_in, UNSEEN.throughput_out, UNSEEN.rate_in, UNSEEN.rate_out
    )


UNSEEN_AVERAGE: Final = BundleAverage(_begun(SHORT_SAMPLES), _begun(LONG_SAMPLES))
"""The averages of a bundle that no report has shown; the first sample replaces them."""


def rate_of(bundles: Iterable[str], averages: Mapping[str, BundleAverage]) -> float:
    """Returns the messages per second of some bundles, over a long term."""
    return sum(averages.get(bundle, UNSEEN_AVERAGE).long.rate for bundle in bundles)
