"""Settings over REST against a whole broker in memory: what may be changed, what is, and every refusal."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.config.keys import BROKER_KEYS
from tests.broker.admin.test_rest import call, refusal
from tests.support.memory_broker import memory_broker
from tests.support.stored_texts import stored_texts
from tests.vectors.folder import find_vectors_folder

PATH = "/admin/v2/brokers/configuration"
SIZE, TTL = "managedLedgerCacheSizeMB", "managedLedgerCacheEvictionTimeThresholdMillis"
MIB = 1 << 20


async def runtime(admin: ClientSession) -> dict[str, str]:
    status, values = await call(admin, f"GET {PATH}/runtime")
    assert status == 200
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_change_reaches_the_room_the_store_and_the_routes(
    broker: BrokerService, admin: ClientSession, method: str
) -> None:
    assert await call(admin, f"GET {PATH}/values") == (200, {})
    before = (await runtime(admin))[SIZE]
    assert await call(admin, f"{method} {PATH}/{SIZE}/32") == (200, "")
    assert broker.cache.manager.settings.size_bytes_max == 32 * MIB
    assert await call(admin, f"GET {PATH}/values") == (200, {SIZE: "32"})
    assert (await runtime(admin))[SIZE] == "32"
    assert await stored_texts(broker.environment.metadata) == {SIZE: "32"}

    assert await call(admin, f"DELETE {PATH}/{SIZE}") == (200, "")
    assert broker.cache.manager.settings.size_bytes_max == int(before) * MIB
    assert await call(admin, f"GET {PATH}/values") == (200, {})
    assert await call(admin, f"DELETE {PATH}/{SIZE}") == (200, "")


async def test_change_that_another_broker_has_just_made_is_shown_and_acts() -> None:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(memory_broker(metadata=one)) for one in (store, store.another())
        ]
        await second.dynamic_settings.close()  # Its watch tells too late.
        here, there = [
            await stack.enter_async_context(ClientSession(one.addresses.admin_url)) for one in (first, second)
        ]
        assert await call(here, f"POST {PATH}/{SIZE}/32") == (200, "")
        assert second.cache.manager.settings.size_bytes_max != 32 * MIB
        assert await call(there, f"GET {PATH}/values") == (200, {SIZE: "32"})
        assert second.cache.manager.settings.size_bytes_max == 32 * MIB


async def test_change_reaches_each_room(broker: BrokerService, admin: ClientSession) -> None:
    for key, value in {
        TTL: "77",
        "dispatcherMaxReadBatchSize": "9",
        "managedLedgerMinimumBacklogCursorsForCaching": "3",
        "maxMessagePublishBufferSizeInMB": "1",
        "entryCacheDecisionsKept": "0",
    }.items():
        assert await call(admin, f"POST {PATH}/{key}/{value}") == (200, "")
    assert broker.cache.manager.settings.ttl_ns == 77_000_000
    assert broker.registry.settings.read_entries_max == 9
    assert broker.registry._ledger_settings.backlog_cursors_min_for_caching == 3
    assert broker.net.settings.publish_buffer_bytes_max == MIB
    assert broker.net.publish_buffer.take(MIB + 1)
    assert not broker.cache.decisions.on


DYNAMIC_HERE_ALONE = {"managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis"}
"""Keys of Pulsar that it reads at its start only. The grace time follows the time to live, which changes at run time."""

NEW_IN_5_0 = {"brokerCloseInactiveTopicsEnabled"}
"""Dynamic keys that Pulsar 5.0 added; the recorded answer is a broker's of 4.2.4."""


async def test_dynamic_keys_are_those_of_pulsar_and_our_own(admin: ClientSession) -> None:
    status, names = await call(admin, f"GET {PATH}")
    assert status == 200
    assert isinstance(names, list)
    ours = {key.name for key in BROKER_KEYS.keys.values() if key.ours and key.dynamic}
    assert "entryCacheTopicQuotaMB" in ours
    assert set(names) - recorded_names() == ours | DYNAMIC_HERE_ALONE | NEW_IN_5_0
    assert recorded_names() - set(names) == set()


def recorded_names() -> set[str]:
    folder = find_vectors_folder()
    if folder is None:
        pytest.skip("no golden files; set MAGNETAR_VECTORS")
    with (folder / "rest/default.jsonl").open(encoding="utf-8") as lines:
        records = (json.loads(line) for line in lines)
        return set(next(one["response"]["body"] for one in records if one["name"] == "brokers-configuration"))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"{SIZE}/-1", f"{SIZE}=-1: allowed is a whole number from 0 to 2147483647"),
        (f"{SIZE}/1.5", f"{SIZE}=1.5: allowed is a whole number from 0 to 2147483647"),
        (f"{TTL}/0", f"{TTL}=0: allowed is a whole number from 1"),
        (
            "managedLedgerCacheEvictionWatermark/1.5",
            "managedLedgerCacheEvictionWatermark=1.5: allowed is a number from 0 to 1",
        ),
        ("allowAutoTopicCreation/yes", "allowAutoTopicCreation=yes: allowed is true or false"),
        (
            "allowAutoTopicCreationType/some%2Ftimes",
            "allowAutoTopicCreationType=some/times: allowed is one of non-partitioned, partitioned",
        ),
    ],
)
async def test_value_is_refused_when_a_start_would_refuse_it(
    admin: ClientSession, path: str, reason: str
) -> None:
    expected = (412, f"Invalid dynamic-config value: {reason}")
    assert await refusal(admin, f"POST {PATH}/{path}") == expected
    assert await refusal(admin, f"PUT {PATH}/{path}") == expected
    assert await call(admin, f"GET {PATH}/values") == (200, {})


async def test_value_is_refused_when_it_contradicts_another_key(
    broker: BrokerService, admin: ClientSession
) -> None:
    most, partitions = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"
    for path in ("allowAutoTopicCreationType/partitioned", f"{partitions}/8"):
        assert await call(admin, f"POST {PATH}/{path}") == (200, "")
    status, reason = await refusal(admin, f"POST {PATH}/{most}/4")
    assert (status, reason.partition(": ")[0]) == (412, "Invalid dynamic-config value")
    assert reason.endswith(f": {partitions} (8) may not be above {most} (4)")
    assert broker.registry.settings.partitions_max == 0
    assert await call(admin, f"POST {PATH}/{most}/8") == (200, "")
    assert broker.registry.settings.partitions_max == 8


async def test_proof_with_which_no_broker_could_ask_another_is_refused(admin: ClientSession) -> None:
    plugin, parameters = "brokerClientAuthenticationPlugin", "brokerClientAuthenticationParameters"
    status, reason = await refusal(admin, f"POST {PATH}/{plugin}/x.y.Z")
    assert status == 412
    wanted = f"Invalid dynamic-config value: {plugin}=x.y.Z: no plugin that is built in; set one of "
    assert reason.startswith(wanted)
    java = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    status, reason = await refusal(admin, f"POST {PATH}/{plugin}/{java}")
    assert status == 412
    assert reason.endswith(f"set {parameters} first, then the plugin")
    assert await call(admin, f"GET {PATH}/values") == (200, {})
    assert await call(admin, f"POST {PATH}/{parameters}/token:abc") == (200, "")
    assert await call(admin, f"POST {PATH}/{plugin}/{java}") == (200, "")
    assert (await call(admin, f"DELETE {PATH}/{parameters}"))[0] == 412


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("managedLedgerCacheCopyEntries", "this key only changes with a restart"),
        ("backlogQuotaDefaultLimitGB", "this key only changes with a restart"),
        ("managedLedgerCacheSizeMb", f"no such key; did you mean {SIZE}?"),
        ("zzz", "no such key"),
    ],
)
async def test_key_is_refused_when_it_is_not_dynamic(admin: ClientSession, key: str, why: str) -> None:
    refused = (412, f"Can't update non-dynamic configuration: {key}: {why}")
    assert await refusal(admin, f"POST {PATH}/{key}/1") == refused
    refused = (412, f"Can't delete non-dynamic configuration: {key}: {why}")
    assert await refusal(admin, f"DELETE {PATH}/{key}") == refused


async def test_key_without_effect_is_stored_with_a_warning(admin: ClientSession) -> None:
    async with admin.post(f"{PATH}/loadBalancerMaxNumberOfBrokerSheddingPerCycle/40000") as answer:
        assert (answer.status, await answer.text()) == (200, "")
        said = '299 - "dynamic: loadBalancerMaxNumberOfBrokerSheddingPerCycle: accepted, not used here"'
        assert answer.headers["Warning"] == said
    async with admin.post(f"{PATH}/{SIZE}/32") as answer:
        assert "Warning" not in answer.headers


async def test_key_that_asks_for_a_missing_protection_is_refused_and_not_stored(
    broker: BrokerService, admin: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "loadBalancerTransferEnabled"
    monkeypatch.setitem(BROKER_KEYS.unused.asks_for, name, "a protection")
    reason = await refusal(admin, f"POST {PATH}/{name}/false")
    assert reason[0] == 412
    assert reason[1].startswith(f"Invalid dynamic-config value: {name}=false: asks for a protection")
    assert await call(admin, f"GET {PATH}/values") == (200, {})
    assert await stored_texts(broker.environment.metadata) == {}
    assert await call(admin, f"POST {PATH}/{name}/true") == (200, "")


async def test_secret_is_masked_in_a_refusal(admin: ClientSession) -> None:
    key = "tokenSecretKey"
    status, reason = await refusal(admin, f"POST {PATH}/{key}/token:hunter2")
    assert status == 412
    assert key in reason
    assert "hunter2" not in reason


@pytest.mark.parametrize("line", [f"GET {PATH}/{SIZE}", f"POST {PATH}/{SIZE}", f"PATCH {PATH}/{SIZE}/1"])
async def test_other_methods_are_not_allowed(admin: ClientSession, line: str) -> None:
    status, _ = await call(admin, line)
    assert status == 405
