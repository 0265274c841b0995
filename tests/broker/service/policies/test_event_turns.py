"""EventTurns: what a broker is told that does not come to its turn, or whose metadata store is away."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.policies import event_turns
from broker.service.policies.event_turns import ROOT, EventTurns
from foundation.model.errors import BadVersion, MetadataError, ServiceNotReady
from tests.fakes.metadata import FakeMetadata

NAMESPACE = "public/default"


def turns_of(store: MetadataStore, name: str) -> EventTurns:
    return EventTurns(store, lambda: name)


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a change is over when nothing else can go on."""
    monkeypatch.setattr(event_turns, "CHANGE_S", 0.01)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.usefixtures("soon_over")
async def test_broker_that_has_the_turn_for_long_is_named(bounded: bool) -> None:
    store = MemoryMetadataStore()
    async with turns_of(store.another(), "broker-1:8080").turn(NAMESPACE, bounded=False):
        with pytest.raises(
            ServiceNotReady, match=r"public/default .* broker broker-1:8080 has been changing"
        ):
            async with turns_of(store, "broker-2:8080").turn(NAMESPACE, bounded=bounded):
                raise AssertionError("it has no turn")


@pytest.mark.usefixtures("soon_over")
async def test_change_that_takes_too_long_is_ended_and_the_next_one_has_its_turn() -> None:
    store = MemoryMetadataStore()
    turns = turns_of(store, "broker-1:8080")
    with pytest.raises(ServiceNotReady, match="too many changes, or the storage is slow"):
        async with turns.turn(NAMESPACE, bounded=True):
            await asyncio.Event().wait()
    async with turns_of(store.another(), "broker-2:8080").turn(NAMESPACE, bounded=False):
        pass


@pytest.mark.usefixtures("soon_over")
async def test_store_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_turns, "_NAME_S", 0.01)
    store = FakeMetadata()
    store.gate = asyncio.Event()
    with pytest.raises(ServiceNotReady, match="the metadata store does not answer"):
        async with turns_of(store, "broker-1:8080").turn(NAMESPACE, bounded=True):
            raise AssertionError("it has no turn")


async def test_store_that_fails_is_one_that_is_not_ready() -> None:
    store = FakeMetadata()
    store.refusing = True
    with pytest.raises(ServiceNotReady, match="try again: refused by the test"):
        async with turns_of(store, "broker-1:8080").turn(NAMESPACE, bounded=True):
            raise AssertionError("it has no turn")
    store.refusing = False
    with pytest.raises(ServiceNotReady, match="try again: changed"):
        async with turns_of(store, "broker-1:8080").turn(NAMESPACE, bounded=True):
            raise BadVersion("changed")


async def test_queue_goes_with_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    turns = turns_of(store, "broker-1:8080")
    async with turns.turn(NAMESPACE, bounded=True):
        assert await store.children(ROOT) == ["public"]
    while await store.children(f"{ROOT}/{NAMESPACE}"):  # noqa: ASYNC110  # Nothing tells of it.
        await asyncio.sleep(0)

    async def fail(*_: object) -> None:
        raise MetadataError("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", fail)
        await turns.forget(NAMESPACE)
    assert await store.get(f"{ROOT}/{NAMESPACE}") is not None
    await turns.forget(NAMESPACE)
    assert await store.children(ROOT) == []
