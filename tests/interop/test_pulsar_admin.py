"""Apache's `pulsar-admin` in a session of all its commands for clusters, tenants and namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.pulsar_admin.__main__ import run
from tests.vectors.broker_process import BrokerProcess

HOME = "MAGNETAR_PULSAR_HOME"
"""Names the folder of an unpacked Apache Pulsar."""
WHOLE = ("tenants", "brokers", "ns-isolation-policy", "resource-quotas")
"""Groups of which each command works."""
SETTINGS = {"forceDeleteNamespaceAllowed": "true", "forceDeleteTenantAllowed": "true"}


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(HOME not in os.environ, reason=f"{HOME} names no Apache Pulsar")
def test_pulsar_admin_works_or_names_the_missing_request(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        outcomes = run(Path(os.environ[HOME]), broker.addresses.admin)
        refused = [one for one in outcomes if not one.works]
    assert [one for one in refused if one.command.split()[0] in WHOLE] == []
    assert len(refused) <= 40
    # The broker knows every request: what it refuses it refuses in words, and nothing fails by accident.
    for one in refused:
        assert "unexpected error" not in one.output, one.command
