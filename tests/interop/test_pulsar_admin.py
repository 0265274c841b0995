"""Apache's `pulsar-admin`, `pulsar-client` and `pulsar-perf` in one session of more than 300 commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.pulsar_admin.session import Broker, run
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


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not list(Path(os.environ.get(HOME, "/nowhere")).glob("lib/*pulsar-client-tools*")),
    reason=f"{HOME} names no Apache Pulsar with command-line tools",
)
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
