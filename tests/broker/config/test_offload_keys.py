"""Keys of tiered storage: a value that cannot work ends the start with the key and a remedy."""

from __future__ import annotations

import pytest

from broker.config import load_broker_settings
from broker.managed_ledger.ledger_list import OffloadPlace
from broker.managed_ledger.settings import ManagedLedgerSettings
from foundation.settings.errors import SettingsError


def rules(**values: str) -> ManagedLedgerSettings:
    return ManagedLedgerSettings.of(load_broker_settings(None, environ=values))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"managedLedgerOffloadDriver": "google-cloud-storage"}, "managedLedgerOffloadDriver"),
        ({"managedLedgerOffloadDriver": "filesystem"}, "fileSystemURI.*needs file:///FOLDER"),
        ({"fileSystemURI": "hdfs://host/x"}, "fileSystemURI.*file:///FOLDER"),
        (
            {"managedLedgerOffloadDriver": "aws-s3"},
            "s3ManagedLedgerOffloadBucket.*needs the name of a bucket",
        ),
        (
            {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadBucket": "b"},
            "s3ManagedLedgerOffloadServiceEndpoint.*needs the URL",
        ),
        ({"s3ManagedLedgerOffloadServiceEndpoint": "host:1"}, "s3ManagedLedgerOffloadServiceEndpoint"),
        ({"managedLedgerDataReadPriority": "s3-first"}, "managedLedgerDataReadPriority"),
        ({"s3ManagedLedgerOffloadMaxBlockSizeInBytes": "1"}, "s3ManagedLedgerOffloadMaxBlockSizeInBytes"),
        (
            {
                "managedLedgerOffloadDriver": "S3",
                "managedLedgerOffloadBucket": "b",
                "managedLedgerOffloadServiceEndpoint": "http://h:1",
                "managedLedgerOffloadMaxBlockSizeInBytes": "1",
            },
            "managedLedgerOffloadMaxBlockSizeInBytes.*0 or at least 5242880",
        ),
    ],
)
def test_value_that_cannot_work_is_refused_with_its_key(values: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        rules(**values)


def test_library_for_s3_is_asked_for_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"pip install magnetar\[s3\]"):
        rules(managedLedgerOffloadDriver="aws-s3", managedLedgerOffloadBucket="b")


def test_keys_become_the_rules_of_topics() -> None:
    files = rules(managedLedgerOffloadDriver="filesystem", fileSystemURI="file:///a/b").offload
    assert files.place == OffloadPlace("filesystem", endpoint="file:///a/b")
    assert (files.threshold_bytes, files.threshold_s, files.deletion_lag_ms) == (-1, -1, 14_400_000)
    s3 = rules(
        managedLedgerOffloadDriver="S3",
        managedLedgerOffloadBucket="b",
        s3ManagedLedgerOffloadRegion="r",
        s3ManagedLedgerOffloadServiceEndpoint="http://h:1",
        managedLedgerOffloadThresholdInSeconds="5",
        managedLedgerOffloadAutoTriggerSizeThresholdBytes="7",
        managedLedgerDataReadPriority="bookkeeper-first",
    ).offload
    assert s3.place == OffloadPlace("S3", "b", "r", "http://h:1")
    assert (s3.threshold_bytes, s3.threshold_s, s3.bookkeeper_first) == (7, 5, True)


def test_keys_for_any_driver_win_over_those_of_s3() -> None:
    names = ("Bucket", "Region", "ServiceEndpoint", "MaxBlockSizeInBytes", "ReadBufferSizeInBytes")
    special = dict(zip(names, ("b", "r", "http://h:1", "6000000", "5000"), strict=True))
    general = dict(zip(names, ("c", "q", "http://i:2", "7000000", "6000"), strict=True))
    values = {f"s3ManagedLedgerOffload{name}": value for name, value in special.items()}
    found = rules(managedLedgerOffloadDriver="S3", **values).offload
    assert (found.place, found.block_bytes) == (OffloadPlace("S3", "b", "r", "http://h:1"), 6_000_000)
    assert found.read_bytes == 5000
    values |= {f"managedLedgerOffload{name}": value for name, value in general.items()}
    found = rules(managedLedgerOffloadDriver="S3", **values).offload
    assert (found.place, found.block_bytes) == (OffloadPlace("S3", "c", "q", "http://i:2"), 7_000_000)
    assert found.read_bytes == 6000
