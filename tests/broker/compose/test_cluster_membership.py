"""A bundle that is unloaded: its dormant topics are forgotten, in slices, and whatever its open ones say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.cluster_membership import unload_bundle
from broker.service.lifecycle import namespace_topics
from broker.service.namespaces.bundles import bundles_of
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantTopic
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.loop.slices import ITEMS_MAX
from foundation.model.errors import MetadataError
from foundation.model.topic_name import parse_topic_name
from foundation.settings.errors import SettingsError
from tests.fakes.stage import Stage
from tests.support.memory_broker import memory_broker

NAMESPACE = "public/default"


def add_dormant(stage: Stage, topics: int) -> None:
    for number in range(topics):
        name = parse_topic_name(f"persistent://{NAMESPACE}/topic-{number}")
        record = DormantTopic(None, (), 0, 0, 0, 0, 0, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None)
        stage.registry.dormant.add(name, record)


async def test_unloaded_bundle_forgets_its_dormant_topics_and_lets_others_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicOwnership, "is_shared", True)
    stage = Stage()
    await stage.open()  # Makes the namespace.
    registry = stage.registry
    dormant = registry.dormant
    add_dormant(stage, 6 * ITEMS_MAX)
    bundle = bundles_of(registry.namespaces, NAMESPACE).all()[0]
    seen: set[int] = set()
    unloading = asyncio.ensure_future(unload_bundle(registry, f"{NAMESPACE}/{bundle}"))
    while not unloading.done():
        seen.add(dormant.count)
        while stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    await unloading
    assert len(seen - {dormant.count}) >= 5, "a turn for others after each slice"
    assert dormant.count < 6 * ITEMS_MAX
    assert not any(bundle.has(name) for name, _ in dormant)


async def test_files_of_tls_towards_brokers_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    store = MemoryMetadataStore()
    store.is_shared = True
    missing = tmp_path / "missing.pem"
    settings = ("brokerClientTlsEnabled=true", f"brokerClientTrustCertsFilePath={missing}")
    with pytest.raises(
        SettingsError, match="No such file or directory; correct one of brokerClientTrustCertsFilePath"
    ):
        async with memory_broker(*settings, metadata=store):
            pass
    async with memory_broker(settings[1], metadata=store):
        """Nothing reads the file without TLS."""


async def test_files_that_cannot_be_used_towards_brokers_are_refused_at_run_time(tmp_path: Path) -> None:
    store = MemoryMetadataStore()
    store.is_shared = True
    plugin, parameters = "brokerClientAuthenticationPlugin", "brokerClientAuthenticationParameters"
    missing = tmp_path / "missing"
    async with memory_broker(f"brokerClientTrustCertsFilePath={missing}", metadata=store) as broker:
        settings = broker.dynamic_settings
        with pytest.raises(SettingsError, match="correct one of brokerClientTrustCertsFilePath"):
            await settings.set("brokerClientTlsEnabled", "true")
        await settings.set(parameters, f"file:{missing}")
        with pytest.raises(
            SettingsError, match=f"{parameters}=.*: the token's file {missing} cannot be read"
        ):
            await settings.set(plugin, "token")
        assert list(settings.texts) == [parameters]
        missing.write_text("abc")
        await settings.set(plugin, "token")
        missing.unlink()
        await settings.set("dispatcherMaxReadBatchSize", "7")  # While the file is being replaced.
        assert settings.texts[plugin] == "token"


async def test_bundle_that_was_divided_meanwhile_is_unloaded_too() -> None:
    stage = Stage()
    await stage.open()
    registry = stage.registry
    assert len(bundles_of(registry.namespaces, NAMESPACE).all()) == 4
    name = parse_topic_name(f"persistent://{NAMESPACE}/t")
    topic = await registry.get(name, create=True)
    await unload_bundle(registry, f"{NAMESPACE}/0x00000000_0xffffffff")
    assert topic.closed
    assert registry.topics == {}


async def test_bundle_forgets_its_dormant_topics_although_an_open_one_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicOwnership, "is_shared", True)
    stage = Stage()
    await stage.open()
    add_dormant(stage, 20)

    async def fails(*_: object) -> None:
        raise MetadataError("no lease")

    monkeypatch.setattr(namespace_topics, "unload", fails)
    bundle = bundles_of(stage.registry.namespaces, NAMESPACE).all()[0]
    with pytest.raises(MetadataError, match="no lease"):
        await unload_bundle(stage.registry, f"{NAMESPACE}/{bundle}")
    assert not any(bundle.has(name) for name, _ in stage.registry.dormant)


async def test_ids_that_were_taken_ahead_are_forgotten_with_each_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, forgotten = MemoryMetadataStore(), list[LedgerIds]()
    store.is_shared = True

    def forget(ids: LedgerIds) -> None:
        forgotten.append(ids)

    monkeypatch.setattr(LedgerIds, "forget", forget)
    async with memory_broker(metadata=store) as broker:
        name = parse_topic_name("persistent://public/default/t")
        before = len(forgotten)
        for _ in range(2):
            await broker.registry.ownership.owner_of(name, authoritative=True)
        assert len(forgotten) == before + 1
