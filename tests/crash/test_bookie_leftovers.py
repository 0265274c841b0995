"""The crash runs see a ledger that stays on the bookie without metadata."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

import pulsar

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from protocol.ledger_metadata import ledger_key
from tests.crash.bookie_leftovers import left_on_bookie
from tests.crash.broker_process import BrokerProcess


def test_ledger_without_metadata_is_found_on_the_bookie(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        broker.start()
        client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        ledger_id = client.create_producer("left").send(b"m").ledger_id()
        client.close()
        assert broker.stop() == 0
    finally:
        broker.close()
    assert left_on_bookie(broker.data) == []

    async def forget() -> None:
        store = SqliteMetadataStore(broker.data / "metadata.sqlite")
        await store.delete(ledger_key(ledger_id))
        await store.close()

    asyncio.run(forget())
    assert left_on_bookie(broker.data) == [f"the bookie has ledger {ledger_id}, which has no metadata"]
