"""The defaults that Pulsar 5.0 has changed: `pulsarDefaults` chooses all of them, `config show --origin` shows them.

Source: Pulsar's page "Configuration default changes", and the configuration classes of 4.2.4 and 5.0.0-M1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from foundation.settings.errors import SettingsError
from foundation.settings.keys import format_value
from foundation.settings.settings import Settings
from magnetar.commands.config_command import main

LOADS: Final = "org.apache.pulsar.broker.loadbalance.impl."
TRANSACTIONS: Final = "org.apache.pulsar.broker.transaction."
IN_FLIGHT: Final = "managedLedgerMaxReadsInFlightSizeInMB"
CHANGED: Final = {
    "loadBalancerLoadSheddingStrategy": (f"{LOADS}ThresholdShedder", f"{LOADS}AvgShedder"),
    "loadBalancerLoadPlacementStrategy": (f"{LOADS}LeastLongTermMessageRate", f"{LOADS}AvgShedder"),
    "loadBalancerDistributeBundlesEvenlyEnabled": ("true", "false"),
    "maxUnloadPercentage": ("0.2", "0.5"),
    "defaultNumberOfNamespaceBundles": ("4", "32"),
    "dispatcherDispatchMessagesInSubscriptionThread": ("true", "false"),
    "dispatcherMaxReadBatchSize": ("100", "500"),
    "keySharedLookAheadMsgInReplayThresholdPerConsumer": ("2000", "4000"),
    "keySharedLookAheadMsgInReplayThresholdPerSubscription": ("20000", "40000"),
    # 15 % of the 1000 MiB below.
    IN_FLIGHT: ("0", "150"),
    "managedLedgerMaxUnackedRangesToPersist": ("10000", "200000"),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": ("1000", "200000"),
    "managedLedgerMaxBatchDeletedIndexToPersist": ("10000", "200000"),
    "managedLedgerInfoCompressionType": ("NONE", "LZ4"),
    "managedCursorInfoCompressionType": ("NONE", "LZ4"),
    "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed": ("true", "false"),
    "bookkeeperClientSeparatedIoThreadsEnabled": ("false", "true"),
    "transactionBufferProviderClassName": (
        f"{TRANSACTIONS}buffer.impl.TopicTransactionBufferProvider",
        f"{TRANSACTIONS}buffer.impl.DispatchingTransactionBufferProvider",
    ),
    "transactionPendingAckStoreProviderClassName": (
        f"{TRANSACTIONS}pendingack.impl.MLPendingAckStoreProvider",
        f"{TRANSACTIONS}pendingack.impl.DispatchingTransactionPendingAckStoreProvider",
    ),
    "authenticateOriginalAuthData": ("false", "true"),
    "tlsHostnameVerificationEnabled": ("false", "true"),
    "internalListenerName": ("", "internal"),
    "webServiceTlsProvider": ("Conscrypt", ""),
}
"""By key: the default of 4.2 and that of 5.0."""
ELSEWHERE: Final = ("forwardAuthorizationCredentials", "statsProviderClass")
"""Changed defaults of Pulsar's proxy, which does not exist here, and of Java's bookie."""
CHANGES: Final = 24
"""Lines of Pulsar's page; one of them has two keys, `managedLedgerInfoCompressionType` and that of cursors."""
NEW: Final = {
    "managedLedgerBatchReadEnabled": "true",
    "managedLedgerReadEntriesCallbackInline": "true",
    "managedLedgerAddEntryHandoverMaxBatchItems": "1024",
    "managedLedgerAddEntryHandoverMaxBatchBytesSize": "5242880",
    "managedLedgerReadAheadEnabled": "true",
    "brokerCloseInactiveTopicsEnabled": "false",
    "exposeSubscriptionBacklogAgeInPrometheus": "false",
    "topicPoliciesCacheInitTimeoutSeconds": "60",
    "topicPolicyListenerReplayEnabled": "false",
    "brokerReplicationInactiveThresholdSeconds": "86400",
    "replicationMaxReadProcessingStepsPerTurn": "64",
    "enableShadowTopics": "false",
    "packagesManagementJsonSerializationEnabled": "true",
    "packagesManagementAllowLegacyJavaSerialization": "true",
    "httpMaxResponseHeaderSize": "8192",
    "defaultNumberOfSystemNamespaceBundles": "64",
    "loadManagerMigrationEnabled": "false",
    "tlsFactoryClassName": "",
    "tlsFactoryConfig": "",
    "jcaProvider": "",
    "jsseProvider": "",
    "brokerClientTlsFactoryClassName": "",
    "brokerClientTlsFactoryConfig": "",
    "brokerClientJcaProvider": "",
    "brokerClientJsseProvider": "",
    "scalableTopicsEnabled": "true",
    "scalableTopicAutoScaleEnabled": "true",
    "scalableTopicAutoScaleIntervalSeconds": "60",
    "scalableTopicMaxSegments": "64",
    "scalableTopicMinSegments": "1",
    "scalableTopicMaxDagDepth": "10",
    "scalableTopicSplitCooldownSeconds": "60",
    "scalableTopicMergeCooldownSeconds": "300",
    "scalableTopicMergeWindowSeconds": "300",
    "scalableTopicRebucketCooldownSeconds": "60",
    "scalableTopicSplitMsgRateInThreshold": "10000",
    "scalableTopicSplitBytesRateInThreshold": "50000000",
    "scalableTopicSplitMsgRateOutThreshold": "50000",
    "scalableTopicSplitBytesRateOutThreshold": "250000000",
    "scalableTopicMergeMsgRateInThreshold": "1000",
    "scalableTopicMergeBytesRateInThreshold": "5000000",
    "scalableTopicMergeMsgRateOutThreshold": "5000",
    "scalableTopicMergeBytesRateOutThreshold": "25000000",
    "scalableTopicSplitVsRebucketMinMsgRateInThreshold": "1000",
    "scalableTopicEntryBucketBudget": "4",
    "scalableTopicEntryBucketMaxPerSegment": "1024",
    "scalableTopicLoadReportIntervalSeconds": "10",
    "scalableTopicLoadReportRateChangeThreshold": "0.25",
    "scalableTopicConsumerSessionGracePeriodSeconds": "60",
    "transactionCoordinatorScalableTopicsEnabled": "true",
    "transactionCoordinatorScalableTopicsParallelism": "16",
    "transactionCoordinatorScalableTopicsTimeoutSweepIntervalSeconds": "60",
    "transactionCoordinatorScalableTopicsGcIntervalSeconds": "300",
    "transactionCoordinatorScalableTopicsGcRetentionSeconds": "900",
}
"""By key that 4.2 lacks, or documents from 5.0 on: its default."""


def load(*overrides: str) -> Settings:
    environ = {"PULSAR_MEM": "-XX:MaxDirectMemorySize=1000m"}
    return load_broker_settings(None, environ=environ, overrides=overrides)


@pytest.mark.parametrize(("release", "place"), [("", 0), ("4.2", 0), ("5.0", 1)])
def test_release_chooses_all_changed_defaults(
    release: str,
    place: int,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULSAR_MEM", "-XX:MaxDirectMemorySize=1000m")
    monkeypatch.delenv("PULSAR_BROKER_CONF", raising=False)
    chosen = ("--set", f"pulsarDefaults={release}") if release else ()
    assert main(["show", "--for", "broker", "--origin", "-o", "json", *chosen]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    shown = {key: rows[key]["value"] for key in CHANGED}
    assert shown == {key: values[place] for key, values in CHANGED.items()}
    origins = {key: rows[key]["origin"].split(";")[0] for key in CHANGED if key != IN_FLIGHT}
    assert set(origins.values()) == {f"profile {release or '4.2'}"}


def test_no_other_default_changes() -> None:
    assert main(["show", "--for", "broker", "--diff", "4.2", "5.0"]) == 0
    changed = {key.name for key in BROKER_KEYS.keys.values() if key.v50 is not None}
    assert changed | {row.name for row in BROKER_KEYS.unused.rows if row.v50} == set(CHANGED)


def test_all_changed_defaults_are_known_by_the_process_that_they_are_of() -> None:
    assert len(CHANGED) - 1 + len(ELSEWHERE) == CHANGES
    assert not [key for key in ELSEWHERE if key in BROKER_KEYS.keys or BROKER_KEYS.is_unused(key)]
    # The bookie has no release to choose: its metrics are always Prometheus'.
    accepted = BOOKIE_KEYS.unused.defaults["statsProviderClass"]
    assert accepted[-1] == "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"


def test_value_that_a_file_sets_outranks_the_release() -> None:
    settings = load("pulsarDefaults=5.0", "dispatcherMaxReadBatchSize=100", f"{IN_FLIGHT}=0")
    assert settings.int("dispatcherMaxReadBatchSize") == 100
    assert settings.int(IN_FLIGHT) == 0


@pytest.mark.parametrize("place", [0, 1])
def test_defaults_of_both_releases_say_nothing_in_a_file(place: int) -> None:
    """A broker.conf as Pulsar ships it names its defaults; only what its owner changed is worth a line."""
    unused = {key: values[place] for key, values in CHANGED.items() if BROKER_KEYS.is_unused(key)}
    settings = load(*(f"{key}={value}" for key, value in unused.items()))
    assert [note.text for note in settings.notes if note.level == "warning"] == []


@pytest.mark.parametrize(("key", "default"), NEW.items())
def test_new_key_is_known_with_its_default(key: str, default: str) -> None:
    row = BROKER_KEYS.keys.get(key)
    if row is not None:
        assert format_value(row.default_for("5.0")) == default
    else:
        assert BROKER_KEYS.unused.defaults[key][0] == default


def test_unknown_release_ends_the_start_with_the_releases_that_exist() -> None:
    with pytest.raises(SettingsError, match=r"^--set: pulsarDefaults=6: allowed is one of 4\.0, 4\.2, 5\.0$"):
        load("pulsarDefaults=6")


def test_former_name_of_the_key_is_read() -> None:
    settings = load("magnetarProfile=5.0")
    assert settings.int("dispatcherMaxReadBatchSize") == 500
    assert settings.origin("pulsarDefaults") == "--set"
    assert "--set: magnetarProfile is read as pulsarDefaults, its name of today" in [
        note.text for note in settings.notes
    ]
    environ = {"magnetarProfile": "5.0"}
    assert load_broker_settings(None, environ=environ).int("dispatcherMaxReadBatchSize") == 500
    with pytest.raises(SettingsError, match=r"^--set: pulsarDefaults=6: allowed"):
        load("magnetarProfile=6")


def test_release_5_0_without_authentication_starts() -> None:
    """Its default checks the credentials behind a proxy; only an owner who sets that asks for authentication."""
    assert load("pulsarDefaults=5.0").bool("authenticateOriginalAuthData")
    with pytest.raises(SettingsError, match="authenticationEnabled=true"):
        load("pulsarDefaults=5.0", "authenticateOriginalAuthData=true")


@pytest.mark.parametrize(
    ("others", "remedy"),
    [
        ((), "brokerDeleteInactiveTopicsEnabled=false"),
        (
            (
                "brokerDeleteInactiveTopicsEnabled=false",
                "brokerDeleteInactiveTopicsMode=delete_when_subscriptions_caught_up",
            ),
            "brokerDeleteInactiveTopicsMode=delete_when_no_subscriptions",
        ),
    ],
)
def test_closing_excludes_deleting(others: tuple[str, ...], remedy: str) -> None:
    closing = "brokerCloseInactiveTopicsEnabled=true"
    with pytest.raises(SettingsError, match=f"^--set: {closing}: .*{remedy}$"):
        load(closing, *others)
    assert load(closing, "brokerDeleteInactiveTopicsEnabled=false").bool("brokerCloseInactiveTopicsEnabled")
