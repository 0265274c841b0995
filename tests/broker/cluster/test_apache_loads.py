"""Decisions about loads, as Apache 4.2.4's own classes made them (`apache_loads.jsonl.gz`).

Recorded from `ThresholdShedder`, `LeastLongTermMessageRate`, `LoadManagerShared`, `BundleData`, `LocalBrokerData` and
`NamespaceIsolationPolicies` with made-up loads; the answers of each class stand beside what it was asked. Of several equal
brokers Apache takes any; the file has all that it took in 200 tries.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.isolation import permitted, policy_of
from broker.cluster.loads import (
    NO_LOAD,
    UNSEEN_AVERAGE,
    Average,
    BrokerLoad,
    BundleAverage,
    BundleLoad,
    ResourceUse,
    Weights,
    rate_of,
)
from broker.cluster.placement import least_loaded, with_few_topics
from broker.cluster.shedding import may_move, shed
from broker.service.namespaces.bundles import BundleRates, hash_of, hashes_by_rates, middle_of

CASES = [
    json.loads(line)
    for line in gzip.decompress(Path(__file__).with_name("apache_loads.jsonl.gz").read_bytes()).splitlines()
]


def cases(kind: str) -> list[Any]:
    return [case for case in CASES if case["kind"] == kind]


def average(found: Mapping[str, Any]) -> BundleAverage:
    def one(data: Mapping[str, Any]) -> Average:
        keys = ("maxSamples", "numSamples", "msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
        return Average(*(data[key] for key in keys))

    return BundleAverage(one(found["shortTermData"]), one(found["longTermData"]), found["topics"])


def load(report: Mapping[str, Any], averages: Mapping[str, BundleAverage]) -> BrokerLoad:
    def usage(key: str) -> ResourceUse:
        return ResourceUse(report[key]["usage"], report[key]["limit"])

    bundles = {}
    for bundle in report["bundles"]:
        short = averages[bundle].short if bundle in averages else None
        bundles[bundle] = (
            BundleLoad(0.0, short.throughput_in, 0.0, short.throughput_out) if short else NO_LOAD
        )
    found = BrokerLoad(
        usage("cpu"),
        usage("memory"),
        usage("directMemory"),
        usage("bandwidthIn"),
        usage("bandwidthOut"),
        bundles,
    )
    assert found.total.throughput == pytest.approx(report["msgThroughputIn"] + report["msgThroughputOut"])
    return found


def settings(conf: Mapping[str, Any]) -> BalanceSettings:
    def value(key: str, default: float) -> float:
        return float(conf.get(key, default))

    return BalanceSettings(
        threshold=value("loadBalancerBrokerThresholdShedderPercentage", 10) / 100,
        history=value("loadBalancerHistoryResourcePercentage", 0.9),
        throughput_least=value("loadBalancerBundleUnloadMinThroughputThreshold", 10) * (1 << 20),
        lower_boundary=bool(conf.get("lowerBoundarySheddingEnabled")),
        overloaded=value("loadBalancerBrokerOverloadedThresholdPercentage", 85) / 100,
        weights=Weights(
            value("loadBalancerCPUResourceWeight", 1),
            value("loadBalancerDirectMemoryResourceWeight", 1),
            value("loadBalancerBandwidthInResourceWeight", 1),
            value("loadBalancerBandwidthOutResourceWeight", 1),
        ),
    )


@pytest.mark.parametrize("case", cases("shed"), ids=range(len(cases("shed"))))
def test_shedding_chooses_the_bundles_that_apache_chooses(case: Any) -> None:
    usages: dict[str, float] = {}
    for turn, answer in zip(case["rounds"], case["answers"], strict=True):
        averages = {bundle: average(found) for bundle, found in turn["bundles"].items()}
        loads = {name: load(found["report"], averages) for name, found in turn["brokers"].items()}
        movable = {bundle: one for bundle, one in averages.items() if may_move(bundle)}
        found = shed(usages, loads, movable, turn["recent"], settings(case["conf"]))
        usages = found.usages
        assert found.bundles == answer


def test_recorded_shedding_moves_something() -> None:
    assert sum(bool(answer) for case in cases("shed") for answer in case["answers"]) > 30


@pytest.mark.parametrize("case", cases("place"), ids=range(len(cases("place"))))
def test_placement_chooses_among_the_brokers_that_apache_chooses_among(case: Any) -> None:
    chosen = settings(case["conf"])
    used, rates = {}, {}
    for name, found in case["brokers"].items():
        used[name] = load(found["report"], {}).used(chosen.weights)
        times = found["average"]
        coming = {bundle: average(one) for bundle, one in found["preallocated"].items()}
        rates[name] = times["longTermMsgRateIn"] + times["longTermMsgRateOut"] + rate_of(coming, coming)
    # Apache compares single-precision shares with the limit.
    used = {name: round(share, 6) for name, share in used.items()}
    assert sorted(least_loaded(case["candidates"], used, rates, chosen.overloaded)) == case["answers"]


@pytest.mark.parametrize("case", cases("few"), ids=range(len(cases("few"))))
def test_brokers_with_many_topics_are_left_out_as_by_apache(case: Any) -> None:
    topics = {
        name: found["report"]["numTopics"] + sum(one["topics"] for one in found["preallocated"].values())
        for name, found in case["brokers"].items()
    }
    assert sorted(with_few_topics(case["candidates"], topics, case["most"])) == case["answers"]


@pytest.mark.parametrize("case", cases("average"), ids=range(len(cases("average"))))
def test_averages_take_samples_in_as_apache_does(case: Any) -> None:
    found = UNSEEN_AVERAGE
    keys = (
        "msgRateIn",
        "msgThroughputIn",
        "msgRateOut",
        "msgThroughputOut",
        "consumerCount",
        "producerCount",
        "topics",
        "cacheSize",
    )
    for stats in case["stats"]:
        found = found.after(BundleLoad(*(stats[key] for key in keys)))
    expected = average(case["answers"])
    assert found.short == pytest.approx(expected.short)
    assert found.long == pytest.approx(expected.long)
    assert found.topics == expected.topics


@pytest.mark.parametrize("case", cases("usage"), ids=range(len(cases("usage"))))
def test_use_of_a_broker_is_that_of_its_most_used_resource(case: Any) -> None:
    report = case["report"]
    found = load({**report, "msgThroughputIn": 0.0, "msgThroughputOut": 0.0}, {})
    assert found.used() == pytest.approx(case["answers"], rel=1e-6)


@pytest.mark.parametrize("case", cases("isolation"), ids=range(len(cases("isolation"))))
def test_isolation_policies_permit_the_brokers_that_apache_permits(case: Any) -> None:
    policies, answers = case["policies"], case["answers"]
    expected = set(answers["shared"])
    if answers["present"]:
        expected = set(answers["primary"]) | (set(answers["secondary"]) if answers["failover"] else set())
    assert (policy_of(case["namespace"], policies) is not None) == answers["present"]
    assert permitted(case["namespace"], case["brokers"], policies) == expected


@pytest.mark.parametrize("case", cases("split"), ids=range(len(cases("split"))))
def test_bundles_are_divided_where_apache_divides_them(case: Any) -> None:
    rates = {
        hash_of(topic): BundleRates(rate_in + rate_out, throughput_in + throughput_out)
        for topic, (rate_in, rate_out, throughput_in, throughput_out) in case["topics"].items()
    }
    most = BundleRates(case["rate"], case["mbytes"] << 20)
    assert hashes_by_rates(rates, most, case["difference"] / 100) == case["flow"]
    middle = middle_of(rates)
    assert ([] if middle is None else [middle]) == case["counted"]
