"""Requests for whole namespaces, bundles and the broker, as connected official clients feel them."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import Admin, nothing_comes, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"forceDeleteNamespaceAllowed": "true"}
Connect = Callable[[str], pulsar.Client]


def test_cleared_backlog_is_not_delivered(broker: BrokerProcess, admin: Admin, connected: Connect) -> None:
    admin.put("namespaces/public/cleared")
    client = connected(broker.addresses.pulsar)
    names = [f"persistent://public/cleared/t{index}" for index in range(4)]
    for name in names:
        for subscription in ("a", "b"):
            client.subscribe(name, subscription).close()
        publish(client.create_producer(name), numbered(5))
    # A topic that is not open has a backlog too.
    admin.put("namespaces/public/cleared/unload")
    admin.post("namespaces/public/cleared/clearBacklog/a")
    for name in names:
        nothing_comes(client.subscribe(name, "a"))
        assert receive(client.subscribe(name, "b"), 5) == numbered(5)


def test_subscription_with_a_consumer_is_not_deleted_from_a_namespace(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    admin.put("namespaces/public/kept")
    client = connected(broker.addresses.pulsar)
    client.subscribe("persistent://public/kept/a", "s").close()
    consumer = client.subscribe("persistent://public/kept/b", "s")
    with pytest.raises(urllib.error.HTTPError, match="412"):
        admin.post("namespaces/public/kept/unsubscribe/s")
    assert admin.get("persistent/public/kept/a/subscriptions") == ["s"]
    consumer.close()
    admin.post("namespaces/public/kept/unsubscribe/s")
    for local in ("a", "b"):
        assert admin.get(f"persistent/public/kept/{local}/subscriptions") == []


def test_namespace_is_deleted_under_its_connected_clients(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    admin.put("namespaces/public/gone")
    client = connected(broker.addresses.pulsar)
    producer = client.create_producer("persistent://public/gone/t")
    client.subscribe("persistent://public/gone/t", "s")
    publish(producer, numbered(3))
    admin.delete("namespaces/public/gone?force=true")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        admin.get("namespaces/public/gone")
    # The clients come back and must not bring the topic back.
    admin.put("namespaces/public/other")
    assert "public/gone" not in str(admin.get("namespaces/public"))
    with pytest.raises(pulsar.PulsarException):
        connected(broker.addresses.pulsar).create_producer("persistent://public/gone/t")


def test_clusters_bundles_and_quotas_outlive_a_restart_that_an_administrator_asks_for(
    tmp_path: Path,
) -> None:
    process = BrokerProcess(tmp_path)
    admin = Admin(process.start().admin)
    admin.put("clusters/west", {"serviceUrl": "http://west:8080"})
    admin.post("clusters/standalone/failureDomains/d", {"brokers": ["a:8080"]})
    admin.put("namespaces/public/n", {"bundles": {"numBundles": 2}})
    admin.put("namespaces/public/n/0x00000000_0x80000000/split")
    admin.post("resource-quotas/public/n/0x00000000_0x40000000", {"msgRateIn": 7})
    admin.post("brokers/shutdown")
    wait_until(lambda: not process.alive(), "the process ends")
    assert process.stop() == 0
    assert "stopped in" in process.log_tail(5)
    with process:
        admin = Admin(process.addresses.admin)
        assert admin.get("clusters") == ["standalone", "west"]
        assert admin.get("clusters/standalone/failureDomains") == {"d": {"brokers": ["a:8080"]}}
        bundles = admin.get("namespaces/public/n/bundles")
        assert bundles == {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xffffffff"],
            "numBundles": 3,
        }
        quota = admin.get("resource-quotas/public/n/0x00000000_0x40000000")
        assert isinstance(quota, dict)
        assert quota["msgRateIn"] == 7.0
