"""Values that ask for a missing protection: each is refused in one line, and the harmless ones pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config.keys import BROKER_KEYS
from foundation.settings.errors import MissingProtection
from foundation.settings.keys import Key, KeyTable, Section
from foundation.settings.load import load_settings
from foundation.settings.settings import Settings
from foundation.settings.unused import UnusedKeys
from magnetar.process.client_keys import CLIENT_KEYS

TABLE = KeyTable(
    "test",
    [
        Section(
            "All",
            (
                Key("batchSize", "int", 100, "entries", doc="Entries.", dynamic=True),
                Key("guestsPerHour", "int", 0, "guests", doc="Guests.", used=False, asks_for="a counter"),
                Key("doorKey", "string", None, doc="Used.", asks_for="a door"),
            ),
        )
    ],
    unused=UnusedKeys(Path(__file__).with_name("unused_keys.tsv")),
)
EVERY_TABLE = (BROKER_KEYS, BOOKIE_KEYS, CLIENT_KEYS)


def load(*overrides: str, path: Path | None = None, table: KeyTable = TABLE, **environ: str) -> Settings:
    return load_settings(table, path, environ=environ, overrides=overrides)


def refused(*overrides: str, path: Path | None = None, **environ: str) -> str:
    with pytest.raises(MissingProtection) as caught:
        load_settings(TABLE, path, environ=environ, overrides=overrides)
    assert "\n" not in caught.value.line
    return caught.value.line


def test_line_names_place_key_value_protection_and_remedy(tmp_path: Path) -> None:
    conf = tmp_path / "test.conf"
    conf.write_text("batchSize=1\nguardEnabled=true\n")
    assert refused(path=conf) == (
        f"{conf}:2: guardEnabled=true: asks for a guard (not built); to go without, leave the key at false"
    )
    assert refused(PULSAR_PREFIX_guardRoles="a,b") == (
        "environment PULSAR_PREFIX_guardRoles: guardRoles=a,b: asks for a guard (not built);"
        " to go without, leave the key unset"
    )
    assert refused("guestsPerHour=1").startswith("--set: guestsPerHour=1: asks for a counter (not built);")


def test_line_names_every_key_that_asks() -> None:
    line = refused("guardEnabled=true", "guestsMax=5", guardRoles="a")
    assert line.startswith("environment guardRoles: guardRoles=a: asks for a guard")
    assert line.endswith("; the same goes for guardEnabled (--set), guestsMax (--set)")


def test_secret_is_masked_in_the_line() -> None:
    assert "hunter2" not in refused("guardPassword=hunter2")
    assert "hunter2" not in refused("guardPassw=hunter2")


@pytest.mark.parametrize(
    "harmless",
    [
        "guardEnabled=false",
        "guardEnabled=FALSE",
        "guardEnabled=",
        "guardRoles=",
        "guestsMax=0",
        "guestsMax=-1",
        "guestsMax=0.0",
        "guestsMax=00",
        "guestsPerHour=0",
        "doorKey=x",
    ],
)
def test_harmless_value_passes_without_a_note(harmless: str) -> None:
    assert load(harmless).notes == ()


@pytest.mark.parametrize("asking", ["guestsMax=1", "guestsMax=-2", "guardEnabled=yes", "guardEnabled=1"])
def test_value_that_is_not_known_to_be_harmless_is_refused(asking: str) -> None:
    assert f"--set: {asking}: asks for a guard" in refused(asking)


def test_later_source_that_unsets_the_key_lifts_the_refusal(tmp_path: Path) -> None:
    conf = tmp_path / "test.conf"
    conf.write_text("guardEnabled=true\n")
    assert load("guardEnabled=", path=conf).notes == ()


def test_misspelt_key_is_refused_as_the_one_that_is_meant() -> None:
    assert refused("guardEnable=true") == (
        "--set: guardEnable=true: not a key that Pulsar or Magnetar knows, and guardEnabled asks for a guard:"
        " correct the name or remove it"
    )
    assert "doorKey asks for a door" in refused("doorkey=x")
    (note,) = load("guardEnable=false").notes
    assert note.text.endswith("did you mean guardEnabled?")


def test_change_at_run_time_is_refused_in_the_same_words() -> None:
    with pytest.raises(MissingProtection, match=r"^dynamic: guardRoles=a: asks for a guard"):
        load().with_dynamic({"guardRoles": "a"})
    assert load().with_dynamic({"guardEnabled": "false", "batchSize": "7"}).int("batchSize") == 7


def asking_rows() -> Iterator[tuple[KeyTable, str]]:
    for table in EVERY_TABLE:
        for name in (*table.keys, *table.unused.asks_for):
            if table.protection(name) and table.is_unused(name):
                yield table, name


HARMLESS = """
    Sizes, times and file formats:
    inflightSaslContextExpiryMs maxInflightSaslContext
    bookkeeperTlsCertFilesRefreshDurationSeconds bookkeeperTLSKeyFileType bookkeeperTLSTrustCertTypes
    brokerClientTlsKeyStoreType brokerClientTlsTrustStoreType tlsCertFilesRefreshDurationSeconds
    tlsCertRefreshCheckDurationSec tlsKeyStoreType tlsTrustStoreType tlsTrustStorePasswordPath
    brokerPublisherThrottlingTickTimeMillis topicPublisherThrottlingTickTimeMillis

    Implementations to choose from, and limits that Java's broker sets itself towards bookies:
    brokerClientSslProvider tlsProvider webServiceTlsProvider webserviceTlsProvider bookkeeperClientThrottleValue

    They lift a protection, or change how strict one is that another key asks for:
    authorizationAllowWildcardsMatching tlsAllowInsecureConnection dispatchThrottlingOnBatchMessageEnabled
    dispatchThrottlingForFilteredEntriesEnabled dispatchThrottlingOnNonBacklogConsumerEnabled
    dispatchThrottlingRateRelativeToPublishRate readWorkerThreadsThrottlingEnabled

    The broker has no client inside that would prove itself to another broker:
    brokerClientAuthenticationParameters brokerClientAuthenticationPlugin brokerClient_authParamMap
    brokerClient_authParams brokerClient_authPluginClassName

    It refines TLS towards brokers, for which brokerClientTlsEnabled asks, and Pulsar 5.0 has it on by default:
    tlsHostnameVerificationEnabled

    No role appears in the log, and there is no replication to throttle:
    authenticationRoleLoggingAnonymizer dispatchThrottlingRatePerReplicatorInByte
    dispatchThrottlingRatePerReplicatorInMsg
"""
"""Keys with a word of protection in their names whose values may be ignored, by reason."""
VALUES = {"bool": ("true", "false"), "int": ("7",), "list": ("Exclusive",)}


@pytest.mark.parametrize(("table", "name"), list(asking_rows()), ids=lambda part: getattr(part, "name", part))
def test_each_row_passes_its_defaults_and_refuses_another_value(table: KeyTable, name: str) -> None:
    key = table.keys.get(name)
    for harmless in table.unused.defaults.get(name, ()):
        assert load(f"{name}={harmless}", table=table).notes == ()
    others = VALUES[key.kind] if key else ("true", "false", "12345", "x")
    for text in others:
        if not table.says_nothing(name, text):
            with pytest.raises(MissingProtection, match=f"^--set: {name}="):
                load(f"{name}={text}", table=table)
    assert sum(table.says_nothing(name, text) for text in others) <= 1


@pytest.mark.parametrize("text", ["true", "/etc/x", "a"])
def test_tuning_of_a_protection_passes_with_a_note(text: str) -> None:
    """These keys refine a protection that another key asks for."""
    names = "kinitCommand tlsKeyStoreType tlsTrustStoreType"
    for name in names.split():
        (note,) = load(f"{name}={text}", table=BROKER_KEYS).notes
        assert note.text == f"set, but not used here: {name}"


@pytest.mark.parametrize(
    "word", ["auth", "tls", "ssl", "token", "sasl", "role", "encrypt", "secur", "throttl"]
)
def test_key_with_a_word_of_protection_is_judged(word: str) -> None:
    """A new row of such a name must say that it asks for a protection, or stand here as harmless."""
    found = {
        row.name
        for table in EVERY_TABLE
        for row in table.unused.rows
        if word in row.name.lower() and not row.asks_for
    }
    assert not found - set(HARMLESS.split()), "give these an entry in the last column, or a reason above"
