"""Another process holds the metadata file locked, as a backup does, while data is removed: all goes on afterwards."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from magnetar.audit.facts import gather, judge
from magnetar.snapshot.node_sources import nodes_of
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

pytestmark = pytest.mark.one_broker("locks the file of the store inside the process")

WAIT_S = 60.0
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "100",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "1",
    "brokerDeleteInactiveTopicsEnabled": "false",
}


def test_deletion_and_trimming_wait_for_a_locked_metadata_file(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        store = tmp_path / "data" / "metadata.sqlite"
        admin = Admin(broker.addresses.admin)
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            consumer = client.subscribe("trimmed", "s")
            producer = client.create_producer("trimmed", batching_enabled=False)
            gone = client.create_producer("gone", batching_enabled=False)
            publish(producer, numbered(250))
            publish(gone, numbered(250))
            gone.close()
            with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                deleting = threading.Thread(
                    target=admin.delete, args=("persistent/public/default/gone?force=true",)
                )
                deleting.start()
                publish(producer, numbered(40, 250))
                assert receive(consumer, 290) == numbered(290), "what needs no write of metadata is served"
                assert deleting.is_alive()
                other.execute("ROLLBACK")
            deleting.join(WAIT_S)
            assert not deleting.is_alive()
            publish(producer, numbered(20, 290))
            assert receive(consumer, 20) == numbered(20, 290)
            wait_until(lambda: _ledgers(admin) == 1, "acknowledged ledgers are trimmed", WAIT_S)
        assert broker.stop() == 0
        assert not [line for line in broker.log_lines() if "Traceback" in line]
    assert list(judge(gather(nodes_of(f"file:{store}")))) == []


def _ledgers(admin: Admin) -> int:
    stats = admin.get("persistent/public/default/trimmed/internalStats")
    assert isinstance(stats, dict)
    found = stats["ledgers"]
    assert isinstance(found, list)
    return len(found)
