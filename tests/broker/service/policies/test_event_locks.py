"""EventLocks: what a broker is told that does not get the lock, or whose metadata store is away."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.policies import event_locks
from broker.service.policies.event_locks import ROOT, EventLocks
from foundation.model.errors import BadVersion, MetadataError, ServiceNotReady
from tests.fakes.metadata import FakeMetadata

NAMESPACE = "public/default"


def locks_of(store: MetadataStore, name: str) -> EventLocks:
    return EventLocks(store, lambda: name)


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a change is over when nothing else can go on."""
    monkeypatch.setattr(event_locks, "CHANGE_S", 0.01)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.usefixtures("soon_over")
async def test_broker_that_holds_the_lock_for_long_is_named(bounded: bool) -> None:
    store = MemoryMetadataStore()
    async with locks_of(store.another(), "broker-1:8080").hold(NAMESPACE, bounded=False):
        with pytest.raises(
            ServiceNotReady, match=r"public/default .* broker broker-1:8080 has been changing"
        ):
            async with locks_of(store, "broker-2:8080").hold(NAMESPACE, bounded=bounded):
                raise AssertionError("it has no lock")


@pytest.mark.usefixtures("soon_over")
async def test_change_that_takes_too_long_is_ended_and_the_next_one_gets_the_lock() -> None:
    store = MemoryMetadataStore()
    locks = locks_of(store, "broker-1:8080")
    with pytest.raises(ServiceNotReady, match="too many changes, or the storage is slow"):
        async with locks.hold(NAMESPACE, bounded=True):
            await asyncio.Event().wait()
    async with locks_of(store.another(), "broker-2:8080").hold(NAMESPACE, bounded=False):
        pass


@pytest.mark.usefixtures("soon_over")
async def test_store_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_locks, "_NAME_S", 0.01)
    store = FakeMetadata()
    store.gate = asyncio.Event()
    with pytest.raises(ServiceNotReady, match="the metadata store does not answer"):
        async with locks_of(store, "broker-1:8080").hold(NAMESPACE, bounded=True):
            raise AssertionError("it has no lock")


async def test_store_that_fails_is_one_that_is_not_ready() -> None:
    store = FakeMetadata()
    store.refusing = True
    with pytest.raises(ServiceNotReady, match="try again: refused by the test"):
        async with locks_of(store, "broker-1:8080").hold(NAMESPACE, bounded=True):
            raise AssertionError("it has no lock")
    store.refusing = False
    with pytest.raises(ServiceNotReady, match="try again: changed"):
        async with locks_of(store, "broker-1:8080").hold(NAMESPACE, bounded=True):
            raise BadVersion("changed")


async def test_time_out_of_the_work_is_no_lock_that_came_late() -> None:
    with pytest.raises(TimeoutError, match="of the work"):
        async with locks_of(MemoryMetadataStore(), "broker-1:8080").hold(NAMESPACE, bounded=True):
            raise TimeoutError("of the work")


async def test_lock_goes_with_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    locks = locks_of(store, "broker-1:8080")
    async with locks.hold(NAMESPACE, bounded=True):
        assert await store.children(ROOT) == ["public"]
    while await store.children(f"{ROOT}/{NAMESPACE}"):  # noqa: ASYNC110  # Nothing tells of it.
        await asyncio.sleep(0)

    async def fail(*_: object) -> None:
        raise MetadataError("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", fail)
        await locks.forget(NAMESPACE)
    assert await store.get(f"{ROOT}/{NAMESPACE}") is not None
    await locks.forget(NAMESPACE)
    assert await store.children(ROOT) == []
