"""The contract of sessions: ephemeral keys, conditions of writes, watches, `sync`; of all stores, and in the simulation.

`store` and `other` are two sessions on the same values. In the simulation every call is late and every read may be stale.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.metadata.metadata_store import ABSENT, Check, Ephemeral, MetadataStore, Put, Versioned, Write
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.write_groups import WriteGroups
from foundation.model.errors import BadVersion
from tests.bookkeeper.metadata import test_metadata_stores
from tests.sim.followers import Cluster, FollowerStore
from tests.sim.loop import SimLoop, run

SEEDS = 20


class Watcher:
    """Counts calls, and waits for one after the count was looked at."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self._called.set()

    async def called(self) -> None:
        async with asyncio.timeout(60):
            await self._called.wait()
        self._called.clear()


def lease(key: str = "/leases/a") -> Ephemeral:
    return Ephemeral(key, b"me")


async def test_ephemeral_key_is_a_key_like_others(store: MetadataStore) -> None:
    assert await store.put_all([lease(), Put("/a", b"1", ABSENT)]) == [0, 0]
    assert await store.get("/leases/a") == Versioned(b"me", 0)
    assert await store.children("/leases") == ["a"]
    with pytest.raises(BadVersion):
        await store.put_all([lease(), Put("/b", b"1", ABSENT)])
    assert await store.get("/b") is None
    assert await store.put("/leases/a", b"still me", 0) == 1
    await store.delete("/leases/a", 1)
    assert await store.get("/leases/a") is None
    assert await store.put_all([lease()]) == [0]


async def test_ephemeral_key_goes_with_its_session_and_others_stay(
    store: MetadataStore, other: MetadataStore
) -> None:
    await other.put_all([lease(), Put("/lasting", b"1", ABSENT)])
    await other.put_all([lease("/leases/b")])
    await other.put("/leases/b", b"changed", 0)
    await store.put_all([lease("/leases/mine")])
    await store.sync()
    with pytest.raises(BadVersion):
        await store.put_all([lease()])
    watcher = Watcher()
    await store.watch("/leases/b", watcher)
    await other.close()
    while await store.get("/leases/b") is not None:
        await watcher.called()
    await store.sync()
    assert await store.children("/leases") == ["mine"]
    assert await store.get("/lasting") == Versioned(b"1", 0)
    assert await store.put_all([lease()]) == [0]


async def test_write_is_made_only_while_the_checked_key_has_its_version(store: MetadataStore) -> None:
    await store.put("/term", b"1")
    assert await store.put_all([Check("/term", 0), Put("/a", b"1", ABSENT)]) == [0, 0]
    assert await store.put_all([Put("/a", b"2", 0), Check("/term", 0)]) == [1, 0]
    await store.put("/term", b"2")
    for check in (Check("/term", 0), Check("/missing", 0)):
        both: list[list[Write]] = [[check, Put("/a", b"3", 1)], [Put("/new", b"3", ABSENT), check]]
        for puts in both:
            with pytest.raises(BadVersion):
                await store.put_all(puts)
    assert await store.get("/a") == Versioned(b"2", 1)
    assert await store.get("/new") is None
    assert await store.get("/term") == Versioned(b"2", 1), "a check changes nothing"


async def test_read_after_sync_has_what_another_session_wrote(
    store: MetadataStore, other: MetadataStore
) -> None:
    for number in range(10):
        await other.put("/a", b"%d" % number)
        await store.sync()
        assert await store.get("/a") == Versioned(b"%d" % number, number)


async def test_watch_tells_of_making_changing_and_removing_a_key(
    store: MetadataStore, other: MetadataStore
) -> None:
    await tells_of_a_key(store, other)


async def test_watch_tells_of_own_writes(store: MetadataStore) -> None:
    await tells_of_a_key(store, store)


async def tells_of_a_key(store: MetadataStore, writer: MetadataStore) -> None:
    watcher = Watcher()
    stop = await store.watch("/w/a", watcher)
    values: list[bytes | None] = [b"1", b"2", None, b"3"]
    for value in values:
        await (writer.delete("/w/a") if value is None else writer.put("/w/a", value))
        while (found := await store.get("/w/a")) is None or found.value != value:
            if found is None and value is None:
                break
            await watcher.called()
    stop()
    stop()


async def test_watch_of_children_tells_of_names_that_come_and_go(
    store: MetadataStore, other: MetadataStore
) -> None:
    watcher = Watcher()
    stop = await store.watch_children("/w", watcher)
    for change, names in (
        (other.put("/w/b/deep", b"1"), ["b"]),
        (other.put_all([lease("/w/a")]), ["a", "b"]),
        (other.delete("/w/b/deep"), ["a"]),
        (other.delete("/w/a"), []),
        (other.put("/w/c", b"1"), ["c"]),
    ):
        await change
        while await store.children("/w") != names:
            await watcher.called()
    stop()


async def test_stopped_watch_tells_nothing(store: MetadataStore) -> None:
    calls: list[str] = []
    watcher = Watcher()
    stop = await store.watch("/a", lambda: calls.append("stopped"))
    await store.watch("/a", watcher)
    stop()
    await store.put("/a", b"1")
    await watcher.called()
    await store.put("/a", b"2")
    await watcher.called()
    assert calls == []


Rule = Callable[..., object]


def contract() -> list[Rule]:
    """Returns the tests of this module and of its sister that take nothing but sessions."""
    found = [*vars(test_metadata_stores).items(), *vars(sys.modules[__name__]).items()]
    return [
        rule
        for name, rule in found
        if inspect.iscoroutinefunction(rule)
        and name.startswith("test_")
        and set(inspect.signature(rule).parameters) in ({"store"}, {"store", "other"})
    ]


@pytest.mark.parametrize("rule", contract(), ids=lambda rule: rule.__name__)
def test_contract_holds_in_the_simulation(rule: Rule) -> None:
    """Late answers and stale reads of a follower."""
    for seed in range(SEEDS):
        loop = SimLoop()
        cluster = Cluster(random.Random(seed), loop)
        sessions: dict[str, FollowerStore] = {
            name: FollowerStore(cluster) for name in inspect.signature(rule).parameters
        }
        run(rule(**sessions), loop)  # type: ignore[arg-type]


def test_follower_of_the_simulation_is_stale_without_sync() -> None:
    """Otherwise the simulation would show nothing."""
    stale = 0
    for seed in range(SEEDS):
        loop = SimLoop()
        cluster = Cluster(random.Random(seed), loop)

        async def write_and_read(cluster: Cluster = cluster) -> bool:
            one, two = FollowerStore(cluster), FollowerStore(cluster)
            await one.put("/a", b"1")
            return await two.get("/a") is None

        stale += run(write_and_read(), loop)
    assert stale > 0


async def test_sqlite_removes_ephemeral_keys_that_a_killed_process_has_left(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    killed = SqliteMetadataStore(path)
    await killed.put_all([lease(), Put("/lasting", b"1", ABSENT)])
    await killed.put_all([lease("/leases/gone")])
    await killed.delete("/leases/gone")
    await killed.put("/leases/gone", b"lasting now")
    # Opened beside it: the killed one has done nothing more.
    store = SqliteMetadataStore(path)
    assert await store.children("/leases") == ["gone"]
    assert await store.get("/lasting") == Versioned(b"1", 0)
    await store.put_all([lease()])
    await store.close()
    again = SqliteMetadataStore(path)
    assert await again.children("/leases") == ["gone"]
    await again.close()
    await killed.close()


async def test_urgent_write_waits_for_no_group_but_keeps_the_order_of_its_keys() -> None:
    groups, answers, sent = WriteGroups(), asyncio.Event(), list[str]()

    def write(key: str) -> Callable[[], object]:
        async def apply() -> list[int]:
            sent.append(key)
            await answers.wait()
            return [0]

        return apply

    async def submit(key: str, *, urgent: bool = False) -> None:
        await groups.submit(frozenset((key,)), write(key), urgent=urgent)  # type: ignore[arg-type]

    tasks = [asyncio.create_task(submit(key)) for key in ("a", "a", "b")]
    await settle()
    assert sent == ["a"], "the group that is out ends before the second write of its key"
    tasks.append(asyncio.create_task(submit("lease", urgent=True)))
    await settle()
    assert sent == ["a", "lease"]
    tasks += [asyncio.create_task(submit(key, urgent=True)) for key in ("lease", "b")]
    await settle()
    assert sent == ["a", "lease"], "earlier writes of the same keys are not answered yet"
    answers.set()
    await asyncio.gather(*tasks)
    assert sorted(sent[2:]) == ["a", "b", "b", "lease"]
    await groups.drain(1)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
