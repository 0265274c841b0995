"""Broker and bookie read one standalone.conf: each takes its own keys, and each note comes once."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.settings.errors import MissingProtection, SettingsError
from magnetar.process.process_settings import load_standalone_settings


def test_each_side_reads_its_own_keys(tmp_path: Path) -> None:
    conf = tmp_path / "standalone.conf"
    conf.write_text(
        "journalSyncData=false\nmaxMessageSize=70000\nmagnetarDataDirectory=/d\n"
        "journalSincData=x\nnumIOThreads=77\nnumAddWorkerThreads=88\n"
    )
    both = load_standalone_settings(conf, environ={"PULSAR_PREFIX_magnetarDataDirectory": "/e"})
    assert both.bookie.bool("journalSyncData") is False
    assert both.bookie.list("journalDirectories") == ("/e/bookie/journal",)
    assert both.broker.int("maxMessageSize") == 70000
    assert both.broker.str("metadataStoreUrl") == "file:/e/metadata.sqlite"
    assert [note.text.removeprefix(f"{conf}:") for note in both.notes] == [
        "Applying config magnetarDataDirectory = /e (environment PULSAR_PREFIX_magnetarDataDirectory)",
        "4: journalSincData is not a key that this program knows; did you mean journalSyncData?",
        "set, but not used here: numIOThreads",
        "set, but not used here: numAddWorkerThreads",
    ]


def test_bad_value_of_either_side_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--set: journalSyncData=maybe: allowed is true or false$"):
        load_standalone_settings(None, environ={}, overrides=["journalSyncData=maybe"])
    with pytest.raises(SettingsError, match=r"^--set: maxMessageSize=no: allowed is"):
        load_standalone_settings(None, environ={}, overrides=["maxMessageSize=no"])


@pytest.mark.parametrize("override", ["tlsKeyStore=/k.jks", "tlsTrustStore=/t.jks"])
def test_key_store_of_standalone_is_refused_as_the_brokers(override: str) -> None:
    with pytest.raises(
        MissingProtection, match=rf"^--set: {override}: asks for TLS from Java key stores \(not built\)"
    ):
        load_standalone_settings(None, environ={}, overrides=[override])


def test_key_of_the_bookie_that_asks_for_a_missing_protection_is_refused() -> None:
    with pytest.raises(MissingProtection, match=r"^environment bookieAuthProviderFactoryClass: "):
        load_standalone_settings(None, environ={"bookieAuthProviderFactoryClass": "org.example.Auth"})


def test_keys_of_pulsars_standalone_conf_are_known() -> None:
    """These names stand in Apache Pulsar's own standalone.conf and have no effect here."""
    names = (
        "zookeeperServers bindAddresses numOrderedExecutorThreads zooKeeperSessionTimeoutMillis ttlDurationDefaultInSeconds"
        " loadManagerClassName webSocketServiceEnabled dbStorage_rocksDB_blockSize ledgerStorageClass gcWaitTime"
        " diskUsageWarnThreshold managedLedgerNumSchedulerThreads allowOverrideEntryFilters transactionCoordinatorEnabled"
    )
    overrides = [f"{name}=" for name in names.split()]
    assert load_standalone_settings(None, environ={}, overrides=overrides).notes == ()
