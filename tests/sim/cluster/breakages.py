"""Rules of several brokers, each broken on purpose: the simulation of a cluster must notice it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from unittest import mock

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import Check, Lease, Write
from broker.cluster.balance import Balance
from broker.cluster.divisions import Divisions
from broker.cluster.leases import Leases
from broker.cluster.members import Members
from broker.cluster.ownership import ClusterOwnership
from broker.cluster.records import BUNDLES, decode_owner
from broker.managed_ledger import opening
from broker.managed_ledger.cursor_record import CursorRecord
from broker.service.successor import Successor
from broker.service.topics.topic_ownership import Addresses, Owner
from foundation.model.errors import BadVersion, BrokerError, MetadataError
from foundation.model.topic_name import TopicName
from tests.sim.followers import FollowerStore

_Close = Callable[[str, Successor | None], Awaitable[None]]
_Acquire = Callable[[str, str], Awaitable[object]]
_Store = Callable[[Beside], Awaitable[None]]


def _topics_without_lease() -> object:
    """A topic opens at every broker that is asked."""

    async def check_owned(self: ClusterOwnership, name: TopicName) -> Lease | None:
        return None

    return mock.patch.object(ClusterOwnership, "check_owned", check_owned)


def _lists_without_check() -> object:
    """The lease is looked at before a topic opens, and not in the write that takes it."""
    plain = ClusterOwnership.check_owned

    async def check_owned(self: ClusterOwnership, name: TopicName) -> Lease | None:
        await plain(self, name)
        return None

    return mock.patch.object(ClusterOwnership, "check_owned", check_owned)


def _fences_without_check() -> object:
    """The first write of the list is under the lease, the fence of the former writer is not."""
    plain = opening._find_end

    async def find_end(*arguments: object) -> None:
        await plain(*arguments[:-1], None)  # type: ignore[arg-type,call-arg]

    return mock.patch.object(opening, "_find_end", find_end)


def _cursors_without_check() -> object:
    """Nodes of cursors are written without the lease."""
    return mock.patch.object(CursorRecord, "_conditions", return_value=())


def _checks_outlive_their_session() -> object:
    """A write under a lease that was asked in one session is made in the next one."""

    async def put_all(self: FollowerStore, puts: Sequence[Write]) -> list[int]:
        return await self._write(lambda: self._session.put_all(puts))

    return mock.patch.object(FollowerStore, "put_all", put_all)


def _leases_outlive_their_session() -> object:
    """A new session believes the leases of the one before."""

    def end_session(self: Leases) -> None:
        """Notes nothing."""

    async def is_kept(self: Leases, bundle: str) -> bool:
        return True

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(Leases, "end_session", end_session))
    patches.enter_context(mock.patch.object(Leases, "is_kept", is_kept))
    return patches


def _opens_before_it_has_returned() -> object:
    """Topics open, and are written, while the leases of a new session are not taken yet, under those of the former one."""

    def condition(self: ClusterOwnership, name: TopicName) -> Check:
        bundle = self.bundle_of(name)
        if bundle not in self.leases:
            raise MetadataError(f"this broker has no lease of {bundle}")
        return Check(f"{BUNDLES}/{bundle}", 0)

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(ClusterOwnership, "_check_certain"))
    patches.enter_context(mock.patch.object(ClusterOwnership, "_condition", condition))
    return patches


def _releases_outlive_their_session() -> object:
    """A lease that is given up is removed whoever has it by then."""

    async def delete(self: FollowerStore, key: str, expected: int | None = None) -> None:
        await self._write(lambda: self._session.delete(key, expected))

    return mock.patch.object(FollowerStore, "delete", delete)


def _former_leases_are_removed() -> object:
    async def release(self: Leases, bundle: str) -> None:
        if bundle in self._stops:
            self.drop(bundle)
            await self._store.delete(f"/namespace/{bundle}")

    return mock.patch.object(Leases, "release", release)


def _removals_without_a_read() -> object:
    """A broker removes the node of a bundle that it gives up without a look whose node that is."""

    async def release(self: Leases, bundle: str) -> None:
        if bundle in self._stops:
            is_former = bundle in self._former
            self.drop(bundle)
            if not is_former:
                await self._store.delete(f"/namespace/{bundle}")

    return mock.patch.object(Leases, "release", release)


def _reads_outlive_their_session() -> object:
    """A node that was this broker's when an earlier session read it is removed in the next one."""

    async def remove_own(self: Leases, bundle: str) -> Addresses | None:
        node = await self._store.get(f"/namespace/{bundle}")
        owner = None if node is None else decode_owner(node.value)
        if owner is not None and owner != self._own:
            return owner
        if node is not None:
            with contextlib.suppress(BadVersion):
                await self._store.delete(f"/namespace/{bundle}", node.version)
        return None

    return mock.patch.object(Leases, "_remove_own", remove_own)


def _gives_up_before_topics_are_closed() -> object:
    async def give_up(self: ClusterOwnership, bundle: str, close: _Close, **_: object) -> None:
        await self.leases.release(bundle)
        await close(bundle, None)

    return mock.patch.object(ClusterOwnership, "_give_up", give_up)


def _opens_while_it_unloads() -> object:
    async def give_up(self: ClusterOwnership, bundle: str, close: _Close, **_: object) -> None:
        await close(bundle, None)
        await self.leases.release(bundle)

    return mock.patch.object(ClusterOwnership, "_give_up", give_up)


def _losses_are_not_noticed() -> object:
    """Leases whose nodes may be missing are not checked."""
    return mock.patch.object(ClusterOwnership, "_look_at")


def _lost_bundles_stay_open() -> object:
    """Topics of a bundle that another broker has by now stay open."""

    async def take_again(self: ClusterOwnership, bundle: str) -> None:
        await self.leases.is_kept(bundle)

    return mock.patch.object(ClusterOwnership, "_take_again", take_again)


def _watched_too_late() -> object:
    """A lease is watched from its write on, and what happens in between is not looked for."""
    plain = Leases._make

    async def make(self: Leases, bundle: str, taken: Callable[[], None]) -> object:
        lost, self._lost = self._lost, lambda _: None
        try:
            found = await plain(self, bundle, taken)
        finally:
            self._lost = lost
        return found

    return mock.patch.object(Leases, "_make", make)


def _chosen_brokers_choose_again() -> object:
    """The broker that the leader has chosen is not told to take the bundle."""
    plain = ClusterOwnership._choose

    async def choose(self: ClusterOwnership, bundle: str) -> Owner:
        return (await plain(self, bundle))._replace(authoritative=False)

    return mock.patch.object(ClusterOwnership, "_choose", choose)


def _leaders_are_not_followed() -> object:
    """A broker keeps the members and the leader that it has read at its start."""
    return mock.patch.object(Members, "changed")


def _moved_bundles_move_again() -> object:
    """The leader moves a bundle that it has moved a moment ago."""
    plain = Balance._move

    async def move(self: Balance, *arguments: str) -> bool:
        done = await plain(self, *arguments)
        self._recent.clear()
        return done

    return mock.patch.object(Balance, "_move", move)


def _divides_without_check() -> object:
    """A division is stored whoever has the leases by then."""
    plain = Divisions.divide

    async def divide(
        self: Divisions, bundle: str, parts: Sequence[str], leases: Leases, acquire: _Acquire, store: _Store
    ) -> None:
        await plain(self, bundle, parts, leases, acquire, lambda _: store(tuple))

    return mock.patch.object(Divisions, "divide", divide)


def _parts_are_free() -> object:
    """The broker of the first lookup of a part owns it, while its topics are open at the one that has divided the bundle."""
    plain = Divisions.divide

    async def divide(
        self: Divisions, bundle: str, parts: Sequence[str], leases: Leases, acquire: _Acquire, store: _Store
    ) -> None:
        await plain(self, bundle, (), leases, acquire, store)

    return mock.patch.object(Divisions, "divide", divide)


def _parts_are_given_up_at_once() -> object:
    """A broker that gets no answer about a division takes that for a refusal."""
    plain = Divisions.divide

    async def divide(
        self: Divisions, bundle: str, parts: Sequence[str], leases: Leases, acquire: _Acquire, store: _Store
    ) -> None:
        try:
            await plain(self, bundle, parts, leases, acquire, store)
        except BrokerError:
            for part in parts:
                await leases.release(part)
            raise

    return mock.patch.object(Divisions, "divide", divide)


def _divided_bundles_are_taken() -> object:
    """A broker does not read whether the bundle that it takes is still there."""
    return mock.patch.object(Divisions, "exists", return_value=True)


def _leases_of_ended_bundles_stay() -> object:
    return mock.patch.object(ClusterOwnership, "_release_ended")


CLUSTER_BREAKAGES: dict[str, Callable[[], object]] = {
    "topics-without-lease": _topics_without_lease,
    "lists-without-check": _lists_without_check,
    "fences-without-check": _fences_without_check,
    "cursors-without-check": _cursors_without_check,
    "checks-outlive-their-session": _checks_outlive_their_session,
    "leases-outlive-their-session": _leases_outlive_their_session,
    "opens-before-it-has-returned": _opens_before_it_has_returned,
    "releases-outlive-their-session": _releases_outlive_their_session,
    "former-leases-are-removed": _former_leases_are_removed,
    "removals-without-a-read": _removals_without_a_read,
    "reads-outlive-their-session": _reads_outlive_their_session,
    "gives-up-before-topics-are-closed": _gives_up_before_topics_are_closed,
    "opens-while-it-unloads": _opens_while_it_unloads,
    "losses-are-not-noticed": _losses_are_not_noticed,
    "lost-bundles-stay-open": _lost_bundles_stay_open,
    "watched-too-late": _watched_too_late,
    "chosen-brokers-choose-again": _chosen_brokers_choose_again,
    "leaders-are-not-followed": _leaders_are_not_followed,
    "moved-bundles-move-again": _moved_bundles_move_again,
    "divides-without-check": _divides_without_check,
    "parts-are-free": _parts_are_free,
    "parts-are-given-up-at-once": _parts_are_given_up_at_once,
    "divided-bundles-are-taken": _divided_bundles_are_taken,
    "leases-of-ended-bundles-stay": _leases_of_ended_bundles_stay,
}
