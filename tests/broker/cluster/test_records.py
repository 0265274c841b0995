"""The nodes of a cluster: those that Apache 4.2.4 wrote are read, and ours have the same fields in the same order."""

from __future__ import annotations

import json

import pytest

from bookkeeper.metadata.zookeeper_metadata_store import VALUE_BYTES_MAX
from broker.cluster.loads import NO_LOAD, UNSEEN_AVERAGE, BrokerLoad, BundleLoad, ResourceUse
from broker.cluster.records import (
    LoadReport,
    decode_bundle,
    decode_leader,
    decode_member,
    decode_owner,
    encode_averages,
    encode_bundle,
    encode_leader,
    encode_member,
    encode_owner,
)
from broker.service.topics.topic_ownership import Addresses, Listener

APACHE = Addresses("pulsar://localhost:16650", "http://localhost:18080")
OWNER = b'{"nativeUrl":"pulsar://localhost:16650","httpUrl":"http://localhost:18080","disabled":false,"advertisedListeners":{}}'
ONE = BundleLoad(1.0, 2.0, 3.0, 4.0, 5, 6, 7, 0)
LEADER = b'{"brokerId":"localhost:18080","serviceUrl":"http://localhost:18080"}'
MEMBER = (
    b'{"webServiceUrl":"http://localhost:18080","pulsarServiceUrl":"pulsar://localhost:16650",'
    b'"persistentTopicsEnabled":true,"nonPersistentTopicsEnabled":true,"cpu":{"usage":0.00026692440580673666,'
    b'"limit":200.0},"memory":{"usage":66.57698822021484,"limit":371.25},"directMemory":{"usage":8.0,"limit":384.0},'
    b'"bandwidthIn":{"usage":0.0,"limit":-1000.0},"bandwidthOut":{"usage":0.0,"limit":-1000.0},"msgThroughputIn":0.0,'
    b'"msgThroughputOut":0.0,"msgRateIn":0.0,"msgRateOut":0.0,"lastUpdate":1795456811163,"lastStats":{},"numTopics":0,'
    b'"numBundles":0,"numConsumers":0,"numProducers":0,"bundles":["shop/orders/0xc0000000_0xffffffff"],'
    b'"lastBundleGains":[],"lastBundleLosses":[],"brokerVersionString":"4.2.4","protocols":{},"advertisedListeners":{},'
    b'"loadManagerClassName":"org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",'
    b'"startTimestamp":1795456777904,"maxResourceUsage":0.0208333358168602,"loadReportType":"LocalBrokerData"}'
)
"""As recorded, but for the bundle."""


def test_nodes_of_apache_are_read() -> None:
    assert decode_owner(OWNER) == APACHE
    assert decode_leader(LEADER) == APACHE.broker_id == "localhost:18080"
    name, addresses, load, updated_ms = decode_member("localhost:18080", MEMBER)
    assert (name, addresses, updated_ms) == ("localhost:18080", APACHE, 1795456811163)
    assert load.memory == ResourceUse(66.57698822021484, 371.25)
    assert load.bundles == {"shop/orders/0xc0000000_0xffffffff": NO_LOAD}


def test_registration_with_three_thousand_busy_bundles_fits_into_a_node() -> None:
    # docs/reference/limits.md: 265 bytes and twice the name of the namespace for each bundle.
    busy = BundleLoad(*(12345.678901234567,) * 4, 999, 999, 999, 999_999_999)
    bundles = {f"shop/orders/0x{number:08x}_0x{number + 1:08x}": busy for number in range(3000)}
    report = LoadReport(1795456811163, BrokerLoad(bundles=bundles))
    size = len(encode_member(APACHE, "1.0", 1795456777904, report))
    assert size <= 1000 + len(bundles) * (265 + 2 * len("shop/orders")) < VALUE_BYTES_MAX


def test_own_load_report_has_the_numbers_of_the_load() -> None:
    load = BrokerLoad(
        ResourceUse(50.0, 100.0),
        ResourceUse(1.0, 2.0),
        ResourceUse(3.0, 4.0),
        ResourceUse(5.0, -1000.0),
        ResourceUse(6.0, 100.0),
        {"a/b/0x00000000_0x80000000": ONE, "a/b/0x80000000_0xffffffff": ONE},
    )
    report = LoadReport(8, load, ["a/b/0x00000000_0x80000000"], ["a/c/0x00000000_0xffffffff"])
    value = encode_member(APACHE, "1.0", 7, report)
    assert decode_member("localhost:18080", value) == ("localhost:18080", APACHE, load, 8)
    found = json.loads(value)
    assert (found["msgRateIn"], found["msgThroughputOut"], found["numTopics"]) == (2.0, 8.0, 14)
    assert (found["lastBundleGains"], found["lastBundleLosses"]) == (report.gained, report.lost)
    assert found["maxResourceUsage"] == 0.75, "the cache; an unknown limit counts nothing"


def test_averages_of_a_bundle_come_back() -> None:
    average = UNSEEN_AVERAGE.after(ONE).after(ONE)
    assert decode_bundle(encode_bundle(average)) == average
    assert json.loads(encode_averages([average, average]))["longTermMsgRateIn"] == 2.0


def test_own_nodes_have_the_bytes_of_apache() -> None:
    assert encode_owner(APACHE) == OWNER
    assert encode_leader(APACHE) == LEADER


def test_own_registration_has_the_fields_of_apache() -> None:
    load = BrokerLoad(bundles={"shop/orders/0xc0000000_0xffffffff": NO_LOAD})
    own = json.loads(encode_member(APACHE, "1.0", 7, LoadReport(8, load)))
    theirs = json.loads(MEMBER)
    assert list(own) == list(theirs)
    assert own["loadManagerClassName"] == theirs["loadManagerClassName"]
    assert (own["startTimestamp"], own["lastUpdate"], own["numBundles"]) == (7, 8, 1)


def test_addresses_with_tls_and_listeners_come_back() -> None:
    full = Addresses(
        "pulsar://h:1",
        "http://h:2",
        "pulsar+ssl://h:3",
        "https://h:4",
        {"inner": Listener("pulsar://i:1", "pulsar+ssl://i:3"), "plain": Listener("pulsar://p:1")},
    )
    assert decode_owner(encode_owner(full)) == full
    member = decode_member("h:2", encode_member(full, "1.0", 0, LoadReport(0, BrokerLoad())))
    assert member == ("h:2", full, BrokerLoad(), 0)


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b"7"])
def test_other_bytes_are_refused(value: bytes) -> None:
    for decode in (decode_owner, decode_leader):
        with pytest.raises(ValueError, match=r".+"):
            decode(value)
