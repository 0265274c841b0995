"""Which broker a leader chooses, and what a lease does when requests and nodes of others meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Check, Ephemeral, Stop, Versioned, Write
from broker.cluster.leases import BundleGone, Leases
from broker.cluster.records import BUNDLES
from foundation.model.errors import MetadataError, OwnerUncertain
from tests.broker.cluster.support import addresses

BUNDLE = "shop/orders/0x00000000_0x40000000"
OTHER = "shop/orders/0x40000000_0x80000000"


async def known(_bundle: str) -> bool:
    return True


def leases(store: MemoryMetadataStore, number: int = 0) -> Leases:
    found = Leases(store, lambda bundle: None, known)
    found.open(addresses(number))
    return found


async def test_requests_at_the_same_time_take_one_lease() -> None:
    store = MemoryMetadataStore()
    own = leases(store)
    found = await asyncio.gather(*(own.acquire(BUNDLE) for _ in range(20)))
    assert set(map(str, found)) == {str(addresses(0))}
    node = await store.get(f"{BUNDLES}/{BUNDLE}")
    assert node is not None
    assert node.version == 0


async def test_of_two_brokers_one_gets_the_bundle() -> None:
    store = MemoryMetadataStore()
    first, second = leases(store), leases(store.another(), 1)
    found = await asyncio.gather(first.acquire(BUNDLE), second.acquire(BUNDLE))
    assert found[0] == found[1]
    assert (BUNDLE in first) != (BUNDLE in second)


async def test_owner_that_cannot_be_read_is_an_error_and_no_free_bundle() -> None:
    store = MemoryMetadataStore()
    await store.another().put_all([Ephemeral(f"{BUNDLES}/{BUNDLE}", b"{")])
    for work in (leases(store).owner(BUNDLE), leases(store).acquire(BUNDLE)):
        with pytest.raises(MetadataError, match=BUNDLE):
            await work


async def test_released_bundle_is_free_once() -> None:
    store = MemoryMetadataStore()
    own = leases(store)
    await own.acquire(BUNDLE)
    await own.release(BUNDLE)
    await own.release(BUNDLE)
    assert await own.owner(BUNDLE) is None
    assert (len(own), list(own)) == (0, [])


async def test_release_leaves_a_node_that_is_another_brokers_by_now() -> None:
    store = MemoryMetadataStore()
    own, other = leases(store), leases(store.another(), 1)
    await own.acquire(BUNDLE)
    await store.another().delete(f"{BUNDLES}/{BUNDLE}")
    await other.acquire(BUNDLE)
    await own.release(BUNDLE)
    assert await own.owner(BUNDLE) == addresses(1)


class LateReads(MemoryMetadataStore):
    """Answers its first read late: by then the session has ended."""

    late: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        if (late := self.late) is not None:
            self.late = None
            await late()
        return found


async def test_node_read_in_an_ended_session_is_not_removed() -> None:
    store = LateReads()
    own, other = leases(store), leases(store.another(), 1)
    earlier_life = store.another()
    await leases(earlier_life).acquire(BUNDLE)

    async def late() -> None:
        await earlier_life.close()
        await other.acquire(BUNDLE)
        own.end_session()

    store.late = late
    assert await own.acquire(BUNDLE) == addresses(1)
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is not None


async def test_node_that_was_made_before_the_news_of_its_session_is_removed_later() -> None:
    store = MemoryMetadataStore()
    own, other = leases(store), leases(store.another(), 1)
    await own.acquire(BUNDLE)
    # The write was made in the new session, of which the broker hears after the answer.
    own.end_session()
    await own.release(BUNDLE)
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is not None
    await own.remove_left()
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is None
    await other.acquire(BUNDLE)
    await own.remove_left()
    assert await other.owner(BUNDLE) == addresses(1)


async def test_node_of_the_next_session_whose_news_comes_during_a_release_is_removed_later() -> None:
    store = LateReads()
    own = leases(store)
    await own.acquire(BUNDLE)

    async def late() -> None:
        own.end_session()

    # The node was made in the session whose beginning the broker hears of now.
    store.late = late
    await own.release(BUNDLE)
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is not None
    await own.remove_left()
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is None


class LostAnswers(MemoryMetadataStore):
    """Makes keys, and says that it does not."""

    loses = False

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        found = await super().put_all(puts)
        if self.loses:
            raise MetadataError("connection lost")
        return found


async def test_node_whose_answer_was_lost_is_removed_later_unless_it_is_owned_by_then() -> None:
    store = LostAnswers()
    own = leases(store)
    store.loses = True
    for bundle in (BUNDLE, OTHER):
        with pytest.raises(MetadataError):
            await own.acquire(bundle)
    store.loses = False
    assert await own.acquire(BUNDLE) == addresses(0)
    await own.remove_left()
    found = [await store.get(f"{BUNDLES}/{bundle}") is not None for bundle in (BUNDLE, OTHER)]
    assert found == [True, False]


async def test_bundle_that_is_not_there_is_not_taken() -> None:
    store = MemoryMetadataStore()

    async def exists(bundle: str) -> bool:
        assert await store.get(f"{BUNDLES}/{bundle}") is not None, "read after the write"
        return False

    own = Leases(store, lambda bundle: None, exists)
    own.open(addresses(0))
    with pytest.raises(BundleGone, match="was divided"):
        await own.acquire(BUNDLE)
    assert list(own) == []
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is None


class SlowWatches(MemoryMetadataStore):
    """Has its keys removed by another session before a watch is there."""

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        await self.another().delete(key)
        return await super().watch(key, changed)


async def test_node_that_goes_before_it_is_watched_is_looked_at() -> None:
    store, lost = SlowWatches(), list[str]()
    own = Leases(store, lost.append, known)
    own.open(addresses(0))
    await own.acquire(BUNDLE)
    assert lost == [BUNDLE]


class WatchesAtTheSecondTry(MemoryMetadataStore):
    """Loses the answer to the first watch."""

    tries = 0

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        self.tries += 1
        if self.tries == 1:
            raise MetadataError("connection lost")
        return await super().watch(key, changed)


async def test_lease_without_a_watch_is_looked_at_and_permits_no_write_until_then() -> None:
    store, lost = WatchesAtTheSecondTry(), list[str]()
    own = Leases(store, lost.append, known)
    own.open(addresses(0))
    with pytest.raises(MetadataError, match="connection lost"):
        await own.acquire(BUNDLE)
    assert lost == [BUNDLE]
    with pytest.raises(OwnerUncertain, match="not sure"):
        own.check(BUNDLE)
    assert await own.is_kept(BUNDLE)
    assert own.check(BUNDLE) == Check(f"{BUNDLES}/{BUNDLE}", 0)


async def test_lease_permits_no_write_from_the_news_of_a_change_until_it_is_looked_at() -> None:
    store = MemoryMetadataStore()
    own, other = leases(store), leases(store.another(), 1)
    await own.acquire(BUNDLE)
    await store.another().delete(f"{BUNDLES}/{BUNDLE}")
    assert await other.acquire(BUNDLE) == addresses(1)
    await asyncio.sleep(0)
    # The other broker's node has the version of the one that was removed.
    assert other.check(BUNDLE) == Check(f"{BUNDLES}/{BUNDLE}", 0)
    with pytest.raises(OwnerUncertain, match="not sure"):
        own.check(BUNDLE)
    assert not await own.is_kept(BUNDLE)
    with pytest.raises(OwnerUncertain, match="no lease"):
        own.check(BUNDLE)


async def test_news_without_a_change_leaves_the_lease() -> None:
    own = leases(store := MemoryMetadataStore())
    await own.acquire(BUNDLE)
    store._watches.tell_all()
    await asyncio.sleep(0)
    assert await own.is_kept(BUNDLE)
    assert own.check(BUNDLE) == Check(f"{BUNDLES}/{BUNDLE}", 0)


class EndsDuringTheFirstWrite(MemoryMetadataStore):
    """The session ends while its first write is answered."""

    ended: Callable[[], None] | None = None

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        versions = await super().put_all(puts)
        if (ended := self.ended) is not None:
            self.ended = None
            self._end_session()
            ended()
        return versions


async def test_lease_that_was_made_while_its_session_ended_is_made_again() -> None:
    store = EndsDuringTheFirstWrite()
    own = leases(store)
    store.ended = own.end_session
    await own.acquire(BUNDLE)
    assert await store.get(f"{BUNDLES}/{BUNDLE}") is not None
    assert BUNDLE in own


class CountedStore(MemoryMetadataStore):
    """Counts reads, writes and watches."""

    reads = writes = watches = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        return await super().get(key)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        self.writes += 1
        return await super().put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        self.writes += 1
        await super().delete(key, expected)

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        self.watches += 1
        return await super().watch(key, changed)

    def counted(self) -> tuple[int, int, int]:
        """Returns reads, writes and watches since the last call."""
        found = self.reads, self.writes, self.watches
        self.reads = self.writes = self.watches = 0
        return found


async def test_requests_of_a_lease_are_those_of_the_documentation() -> None:
    # docs/reference/limits.md computes with them.
    own = leases(store := CountedStore())
    await own.owner(BUNDLE)
    assert store.counted() == (1, 0, 0)
    await own.acquire(BUNDLE)
    assert store.counted() == (1, 1, 1)
    await own.owner(BUNDLE)
    await own.acquire(BUNDLE)
    assert store.counted() == (0, 0, 0)
    await own.release(BUNDLE)
    assert store.counted() == (1, 1, 0)


async def test_each_lease_that_is_made_is_told_before_it_counts() -> None:
    own = leases(MemoryMetadataStore())
    told: list[bool] = []
    own.made = lambda: told.append(BUNDLE in own)
    await own.acquire(BUNDLE)
    await own.acquire(BUNDLE)
    assert told == [False]
