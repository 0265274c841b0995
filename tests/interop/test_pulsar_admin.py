"""Apache's `pulsar-admin`, `pulsar-client` and `pulsar-perf` in a session of over 300 commands, and on two brokers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.pulsar_admin.session import Broker, run
from tests.interop.test_zookeeper import Cluster
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

HOME = "MAGNETAR_PULSAR_HOME"
"""Names the folder of an unpacked Apache Pulsar."""
WHOLE = ("tenants", "brokers", "ns-isolation-policy", "resource-quotas", "schemas", "non-persistent")
"""Groups of which each command works."""
TOOLS = ("client", "perf")
"""Tools of which each command works."""
SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
    "transactionCoordinatorEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
}


REFUSED_ON_TWO_BROKERS = (
    "brokers namespaces {cluster} --url nobody:8080",
    "--destinationBroker nobody:8080",
    "unload shop/ns --destinationBroker {other}",
    "unload shop/ns --bundle 0x80000000_0xc0000000",
    "topics create persistent://shop/ns/b",
    "topics create-subscription shop/ns/b",
    "expire-messages shop/ns/p",
    "schemas get shop/ns/b",
    "topics unsubscribe shop/ns/b",
    "topics delete shop/ns/b",
    "topics stats shop/ns/a",
    "no_such_algorithm",
    "split-bundle shop/ns --bundle 0x00000000_0x80000000",
    "ns-isolation-policy list nowhere",
    "ns-isolation-policy brokers nowhere",
    "ns-isolation-policy get {cluster} keep",
    "get-anti-affinity-namespaces",
    "create-failure-domain {cluster} --domain-name e",
    "get-failure-domain {cluster} --domain-name d",
    "resourcegroups delete g",
    "client produce persistent://shop/ns/unwanted",
    "--config clusterName",
    "--config maxConcurrentLookupRequest --value none",
    "namespaces delete shop/alone",
    "topics list shop/ns",
)
"""Commands that Apache Pulsar refuses too, at least once, but for the value `none`."""

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not list(Path(os.environ.get(HOME, "/nowhere")).glob("lib/*pulsar-client-tools*")),
        reason=f"{HOME} names no Apache Pulsar with command-line tools",
    ),
]


def test_commands_of_apaches_tools_work_or_name_the_missing_request(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        outcomes = run(Path(os.environ[HOME]), Broker.at(broker.addresses.admin))
    refused = [one for one in outcomes if not one.works]
    words = [one.command.split() for one in refused]
    assert [one for one in words if one[0] in TOOLS or one[1] in WHOLE] == []
    assert len(refused) <= 40
    # The broker knows every request: what it refuses it refuses in words, and nothing fails by accident.
    for one in refused:
        assert "unexpected error" not in one.output, one.command


def test_commands_work_at_either_of_two_brokers(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    cluster = Cluster(tmp_path, zookeeper)
    cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        for host in ("localhost", "127.0.0.1"):
            folder = tmp_path / host
            folder.mkdir()
            # The load report tells the address for clients.
            settings = {"advertisedAddress": host, "bindAddress": "127.0.0.1", "loadBalancerEnabled": "true"}
            ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port())}
            broker = BrokerProcess(folder, {**SETTINGS, **cluster.store_settings, **settings, **ports})
            stack.enter_context(broker)
        outcomes = run(Path(os.environ[HOME]), Broker.leader_at(broker.addresses.admin))
    refused = [one.command for one in outcomes if not one.works]
    assert [one for one in refused if not any(known in one for known in REFUSED_ON_TWO_BROKERS)] == []
    assert len(refused) <= len(REFUSED_ON_TWO_BROKERS)
    assert not [one.command for one in outcomes if "unexpected error" in one.output]
