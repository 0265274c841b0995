"""A change at run time obeys the rules of a start, is stored, and reaches every room that uses the key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.cluster.balance_settings import BalanceSettings
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.dynamic_settings import DynamicSettings
from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.net.settings import NetSettings
from broker.security.authorization.settings import AuthorizationSettings
from broker.service.settings import ServiceSettings
from foundation.model.errors import MetadataError
from foundation.settings.errors import MissingProtection, NotDynamic, SettingsError
from foundation.settings.keys import Key
from foundation.settings.settings import Settings
from tests.fakes.metadata import FakeMetadata
from tests.support.stored_texts import store_texts, stored_texts

SIZE, TTL = "managedLedgerCacheSizeMB", "managedLedgerCacheEvictionTimeThresholdMillis"
MOST, PARTITIONS = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"


class Rooms:
    """Remembers the settings that the rooms get."""

    def __init__(self, metadata: MetadataStore, *overrides: str) -> None:
        self.handed: list[Settings] = []
        started = load_broker_settings(None, environ={}, overrides=[f"{SIZE}=100", *overrides])
        self.dynamic = DynamicSettings(started, metadata, self.handed.append)


async def opened(metadata: MetadataStore, *overrides: str) -> Rooms:
    rooms = Rooms(metadata, *overrides)
    await rooms.dynamic.open()
    return rooms


async def test_change_holds_at_once_and_after_a_restart_until_unset() -> None:
    metadata = FakeMetadata()
    rooms = await opened(metadata)
    assert rooms.handed == []
    await rooms.dynamic.set(SIZE, " 32 ")
    await rooms.dynamic.set(TTL, "500")
    assert [settings.int(SIZE) for settings in rooms.handed] == [32, 32]
    assert rooms.dynamic.current is rooms.handed[-1]

    again = await opened(metadata)
    (settings,) = again.handed
    assert (settings.int(SIZE), settings.int(TTL), settings.origin(SIZE)) == (32, 500, "dynamic")
    assert again.dynamic.texts == {SIZE: "32", TTL: "500"}

    await again.dynamic.unset(SIZE)
    assert again.dynamic.current.int(SIZE) == 100
    assert again.dynamic.current.int(TTL) == 500
    await again.dynamic.unset(SIZE)
    assert (await opened(metadata)).dynamic.texts == {TTL: "500"}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (SIZE, "-1", SettingsError),
        (SIZE, "much", SettingsError),
        ("managedLedgerCacheCopyEntries", "true", NotDynamic),
        ("noSuchKey", "1", NotDynamic),
    ],
)
async def test_refused_change_has_no_effect(name: str, text: str, error: type[Exception]) -> None:
    metadata = FakeMetadata()
    rooms = await opened(metadata)
    await rooms.dynamic.set(SIZE, "32")
    with pytest.raises(error):
        await rooms.dynamic.set(name, text)
    assert rooms.dynamic.current.int(SIZE) == 32
    assert len(rooms.handed) == 1
    assert await stored_texts(metadata) == {SIZE: "32"}


async def test_unset_is_refused_when_the_key_is_not_dynamic() -> None:
    rooms = await opened(FakeMetadata())
    for name in ("managedLedgerCacheCopyEntries", "noSuchKey"):
        with pytest.raises(NotDynamic):
            await rooms.dynamic.unset(name)


async def test_unset_is_refused_when_the_other_values_exclude_the_old_one() -> None:
    rooms = await opened(FakeMetadata(), "allowAutoTopicCreationType=partitioned", f"{PARTITIONS}=8")
    await rooms.dynamic.set(PARTITIONS, "2")
    await rooms.dynamic.set(MOST, "4")
    with pytest.raises(SettingsError, match=rf"{PARTITIONS} \(8\) may not be above {MOST} \(4\)"):
        await rooms.dynamic.unset(PARTITIONS)
    assert rooms.dynamic.current.int(PARTITIONS) == 2


async def test_setting_is_rolled_back_when_the_store_write_fails() -> None:
    metadata = FakeMetadata()
    rooms = await opened(metadata)
    metadata.refusing = True
    with pytest.raises(MetadataError):
        await rooms.dynamic.set(SIZE, "32")
    assert rooms.dynamic.current.int(SIZE) == 100
    assert rooms.handed == []
    assert rooms.dynamic.texts == {}


async def test_two_concurrent_changes_are_both_stored() -> None:
    metadata = FakeMetadata()
    rooms = await opened(metadata)
    metadata.gate = asyncio.Event()
    both = asyncio.gather(rooms.dynamic.set(SIZE, "32"), rooms.dynamic.set(TTL, "500"))
    await asyncio.sleep(0)
    metadata.gate.set()
    await both
    assert await stored_texts(metadata) == {SIZE: "32", TTL: "500"}
    assert (rooms.handed[-1].int(SIZE), rooms.handed[-1].int(TTL)) == (32, 500)


async def test_start_is_refused_when_a_stored_change_asks_for_a_missing_protection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BROKER_KEYS.unused.asks_for, "loadBalancerTransferEnabled", "a protection")
    metadata = FakeMetadata()
    # Beside a value that is left out, because that one must not carry the other away with it.
    await store_texts(metadata, {TTL: "0", "loadBalancerTransferEnabled": "false"})
    with pytest.raises(MissingProtection) as caught:
        await opened(metadata)
    assert caught.value.line.startswith(
        "/admin/configuration in the metadata store: loadBalancerTransferEnabled=false: asks for a protection"
    )


async def test_stored_change_is_left_out_with_a_warning_when_the_file_excludes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = FakeMetadata()
    stored = {SIZE: "32", MOST: "4", "managedLedgerCacheCopyEntries": "true", TTL: "0"}
    await store_texts(metadata, stored)
    with caplog.at_level(logging.WARNING, "magnetar"):
        rooms = await opened(metadata, "allowAutoTopicCreationType=partitioned", f"{PARTITIONS}=8")
    assert rooms.dynamic.texts == {SIZE: "32"}
    assert rooms.handed[-1].int(MOST) == 0
    assert [record.getMessage().split(":")[1].strip() for record in caplog.records] == [
        f"{MOST}=4",
        "managedLedgerCacheCopyEntries",
        f"{TTL}=0",
    ]


async def test_stored_pair_is_applied_when_only_both_together_are_allowed() -> None:
    metadata = FakeMetadata()
    await store_texts(metadata, {PARTITIONS: "8", MOST: "8"})
    rooms = await opened(metadata, "allowAutoTopicCreationType=partitioned", f"{MOST}=4")
    assert rooms.dynamic.texts == {PARTITIONS: "8", MOST: "8"}


async def test_set_returns_a_warning_once() -> None:
    rooms = await opened(FakeMetadata(), "managedLedgerMaxReadsInFlightSizeInMB=5")
    (note,) = await rooms.dynamic.set("dispatcherMaxReadSizeBytes", "6000000")
    assert "less than one read may bring" in note.text
    assert await rooms.dynamic.set(SIZE, "32") == []


OTHER: Mapping[str, str] = {
    "int": "7",
    "long": "7",
    "double": "0.25",
    "list": "a,b",
}
"""Values that no key in use has as its default."""

ELSEWHERE = (
    "brokerShutdownTimeoutMs",
    "entryCacheDecisionsKept",
    "brokerClientTlsEnabled",
    "brokerClientAuthenticationPlugin",
    "brokerClientAuthenticationParameters",
    "supportedNamespaceBundleSplitAlgorithms",
    "defaultNamespaceBundleSplitAlgorithm",
    "flowOrQpsDifferenceThresholdPercentage",
)
"""Read by the process when it stops, by the broker itself, with each request to another broker, and to divide a bundle:
tests/interop/test_settings_at_run_time.py, tests/broker/admin/cluster/test_configuration.py,
tests/broker/peers/test_peers.py and tests/broker/admin/namespaces/test_bundles.py see what they change."""


def other_of(key: Key) -> str:
    """Another value than the default; no key with choices has the last one as its whole default."""
    if key.kind == "bool":
        return "false" if key.default else "true"
    return key.choices[-1] if key.choices else OTHER[key.kind]


@pytest.mark.parametrize(
    "name",
    [key.name for key in BROKER_KEYS.keys.values() if key.dynamic and key.used and key.name not in ELSEWHERE],
)
def test_dynamic_key_changes_the_value_of_a_room(name: str) -> None:
    partitioned = [] if name == "allowAutoTopicCreationType" else ["allowAutoTopicCreationType=partitioned"]
    started = load_broker_settings(None, environ={}, overrides=partitioned)
    key = BROKER_KEYS.keys[name]
    after = started.with_dynamic({name: other_of(key)})
    assert after.value(name) != started.value(name)
    assert handed(after) != handed(started)


def handed(settings: Settings) -> tuple[object, ...]:
    return (
        EntryCacheSettings.of(settings),
        ManagedLedgerSettings.of(settings),
        ServiceSettings.of(settings),
        NetSettings.of(settings),
        AuthorizationSettings.of(settings),
        BalanceSettings.of(settings),
    )
