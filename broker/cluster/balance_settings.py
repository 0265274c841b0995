"""Settings of the load balance: Pulsar's keys loadBalancer…"""

from __future__ import annotations

from broker.cluster.loads import Weights
from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings

_MIB = 1 << 20


def _share(name: str) -> float:
    """Makes a field for a percentage, 1 for all."""
    return broker_key.rule(lambda settings: settings.int(name) / 100)


def _least_throughput(settings: Settings) -> float:
    return settings.float("loadBalancerBundleUnloadMinThroughputThreshold") * _MIB


def _bundle_throughput(settings: Settings) -> float:
    return settings.int("loadBalancerNamespaceBundleMaxBandwidthMbytes") * _MIB


def _excluded(settings: Settings) -> frozenset[str]:
    return frozenset(settings.list("loadBalancerSheddingExcludedNamespaces"))


def _weights(settings: Settings) -> Weights:
    return Weights(
        settings.float("loadBalancerCPUResourceWeight"),
        settings.float("loadBalancerDirectMemoryResourceWeight"),
        settings.float("loadBalancerBandwidthInResourceWeight"),
        settings.float("loadBalancerBandwidthOutResourceWeight"),
    )


class BalanceSettings(RoomSettings):
    """Values of the keys, shares as 1 for all, rates per second."""

    enabled: bool = broker_key.bool("loadBalancerEnabled")
    report_change: float = _share("loadBalancerReportUpdateThresholdPercentage")
    """The change of a number in a load report that is worth a new one."""
    report_least_ms: int = broker_key.int("loadBalancerReportUpdateMinIntervalMillis")
    report_most_ms: int = broker_key.int("loadBalancerReportUpdateMaxIntervalMinutes", "ms")
    usage_ms: int = broker_key.int("loadBalancerHostUsageCheckIntervalMinutes", "ms")
    store_ms: int = broker_key.int("loadBalancerResourceQuotaUpdateIntervalMinutes", "ms")
    sheds: bool = broker_key.bool("loadBalancerSheddingEnabled")
    shed_ms: int = broker_key.int("loadBalancerSheddingIntervalMinutes", "ms")
    grace_ms: int = broker_key.int("loadBalancerSheddingGracePeriodMinutes", "ms")
    threshold: float = _share("loadBalancerBrokerThresholdShedderPercentage")
    """How far above the average a busy broker is."""
    history: float = broker_key.float("loadBalancerHistoryResourcePercentage")
    throughput_least: float = broker_key.rule(_least_throughput)
    """Bytes per second that are worth a move."""
    lower_boundary: bool = broker_key.bool("lowerBoundarySheddingEnabled")
    excluded: frozenset[str] = broker_key.rule(_excluded)
    """Namespaces whose bundles stay."""
    weights: Weights = broker_key.rule(_weights)
    """The weight of each resource in the use of a broker."""
    overloaded: float = _share("loadBalancerBrokerOverloadedThresholdPercentage")
    """Use above which a broker gets a bundle only where all are like that."""
    topics: int = broker_key.int("loadBalancerBrokerMaxTopics")
    evenly: bool = broker_key.bool("loadBalancerDistributeBundlesEvenlyEnabled")
    domains: bool = broker_key.bool("failureDomainsEnabled")
    splits: bool = broker_key.bool("loadBalancerAutoBundleSplitEnabled")
    unloads_parts: bool = broker_key.bool("loadBalancerAutoUnloadSplitBundlesEnabled")
    bundle_topics: int = broker_key.int("loadBalancerNamespaceBundleMaxTopics")
    bundle_sessions: int = broker_key.int("loadBalancerNamespaceBundleMaxSessions")
    bundle_rate: int = broker_key.int("loadBalancerNamespaceBundleMaxMsgRate")
    bundle_throughput: float = broker_key.rule(_bundle_throughput)
    """Bytes per second above which a bundle is divided."""
    namespace_bundles: int = broker_key.int("loadBalancerNamespaceMaximumBundles")
