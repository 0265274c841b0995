"""ClusterOwnership: which broker serves a topic where several share a metadata store, by the rules of Apache 4.2.4.

    the bundle has an owner       -> its addresses, whichever broker is asked
    nobody has it, and the request says that this broker shall take it (`authoritative`) -> taken, own addresses
    nobody has it, this broker leads or nobody does -> the broker that `balance` chooses; if that is another one, the client
                                     is sent there with `authoritative`
    nobody has it, another leads  -> the client is sent to the leader

A lookup takes three steps at most: any broker, the leader, the chosen one. Only a broker with the lease opens topics of a
bundle. A session that has ended takes its leases along: nothing new opens until each is taken again, and the topics of a
bundle that another broker has by then are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import ABSENT, Check, Lease, MetadataStore, SessionState
from broker.cluster.balance import Balance
from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.dead_owners import DeadOwners
from broker.cluster.deletion_elsewhere import delete_at_owner
from broker.cluster.divisions import NOT_DIVIDED, Divisions
from broker.cluster.hand_over import CloseBundle, HandOver
from broker.cluster.leases import Leases
from broker.cluster.members import RETRY_S, Members
from broker.cluster.moves import LOOKUP, UNLOADED, Moves, explained
from broker.cluster.orders import Orders
from broker.cluster.records import Member, encode_leader
from broker.cluster.reports import LoadReports
from broker.peers.peers import Peers
from broker.service.namespaces.bundles import KnownBundles
from broker.service.namespaces.namespaces import NamespaceNotFound, Namespaces
from broker.service.namespaces.stored_forms import CLUSTERS_ROOT, dump
from broker.service.successor import Successor
from broker.service.topics.topic_ownership import (
    Addresses,
    BrokerSeen,
    ClusterSeen,
    MoveKind,
    Owner,
    OwnershipCounts,
    TopicOwnership,
)
from broker.service.transactions.coordinator import Spawn
from foundation.model.errors import (
    BadVersion,
    BrokerError,
    MetadataError,
    OwnerUncertain,
    ServiceNotReady,
)
from foundation.model.topic_name import TopicName

log = logging.getLogger("magnetar")

REPORT_INTERVAL_S: Final = 5.0
"""Seconds between two looks whether the load report is to be written, as in Apache."""

_EARLIER_LIFE: Final = "an earlier life of this broker had left it"
_STOP: Final = "the broker stopped"

_LOOKUPS_AT_ONCE: Final = 20
"""Bundles whose owners are looked up at the same time for one request."""

LEFT_AFTER: Final = 1.5
"""Times of a session after which a broker that was killed has left; ZooKeeper ends sessions at its next tick."""


class ClusterOwnership(TopicOwnership):
    """Assigns topics to brokers by leases of bundles."""

    is_shared = True
    """Other brokers may come at any time."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        version: str,
        *,
        spawn: Spawn,
        now_ns: Callable[[], int],
        wall_ms: Callable[[], int],
        session_s: float,
        peers: Peers,
        settings: Callable[[], BalanceSettings] = BalanceSettings,
    ) -> None:
        """Bundles are named `tenant/namespace/range`. `session_s`: how long a broker that was killed seems to be there.

        `settings` returns those of the load balance that hold now.
        """
        super().__init__()
        self.members = Members(store, spawn)
        """The brokers of the cluster."""
        self.moves = Moves(store, wall_ms)
        """The record of bundles that moved here, for people."""
        self._divisions = Divisions(store, namespaces, self.moves)
        self.leases = Leases(store, self._look_at, self._divisions.exists)
        """The bundles of this broker."""
        self._store = store
        self._namespaces = namespaces
        self._bundles = KnownBundles(namespaces)
        self._spawn = spawn
        self._dead_owners = DeadOwners(now_ns, session_s * LEFT_AFTER)
        self.peers = peers
        """Requests to the other brokers."""
        peers.brokers = lambda: self.brokers
        self.delete_elsewhere = partial(delete_at_owner, self, peers)
        self.hand_over = HandOver(
            self.leases,
            peers,
            namespaces,
            lambda bundle, flag: self.owner_of_bundle(bundle, authoritative=flag),
        )
        """Gives bundles up."""
        self.parts = self.hand_over.staying
        self._is_connected = True
        """False while the store does not answer."""
        self._is_joined = False
        """True once every lease has been taken in this session."""
        self._session = 0
        """Counts the sessions that have ended."""
        self._is_leaving = False

        def now_ms() -> int:
            return now_ns() // 1_000_000

        self._settings = settings
        self._wall_ms = wall_ms
        self.reports = LoadReports(self.members, self.leases, version, settings, wall_ms, now_ms)
        """The load reports of this broker."""
        orders = Orders(self.members, self.leases, self.moves, peers)
        self.balance = Balance(store, namespaces, settings, now_ms, orders)
        """Chooses owners, and moves bundles from busy brokers to others."""

    @property
    def brokers(self) -> Mapping[str, Addresses]:
        """The brokers whose registrations were read last."""
        return {name: member.addresses for name, member in self.members.members.items()}

    @property
    def leader(self) -> str | None:
        """The leader, as read last."""
        return self.members.leader

    @property
    def counts(self) -> OwnershipCounts:
        """The numbers of this broker."""
        members, leader = self.members.members, self.members.leader
        return OwnershipCounts(
            brokers=len(members),
            has_leader=leader in members,
            leases=len(self.leases),
            is_serving=self._is_connected and self._is_joined,
            sessions_ended=self._session,
            waited_for=self._dead_owners.waited_for,
            moves=self.moves.counts,
            shed_brokers=self.balance.counts.brokers,
            shed_bundles=self.balance.counts.moved,
            divided_bundles=self.balance.counts.divided,
        )

    async def seen(self) -> ClusterSeen:
        """Returns the brokers as their last load reports show them, and their moves. Raises MetadataError."""
        weights = self._settings().weights
        members, now_ms = await self.members.read(), self._wall_ms()
        own = Member(self.owner.broker_id, self.owner, self.reports.load, now_ms)
        brokers = {
            one.broker_id: BrokerSeen(
                one.addresses,
                sorted(one.load.bundles),
                one.load.used(weights),
                one.load.total.rate,
                # The clock of the other broker may be ahead of this one's.
                max(0, now_ms - one.updated_ms),
            )
            for one in (members | {own.broker_id: own}).values()
        }
        return ClusterSeen(brokers, self.leader, explained(await self.moves.all()))

    async def open(self, owner: Addresses) -> None:
        """Joins the cluster with these addresses. Raises MetadataError."""
        self.owner = owner
        self.leases.open(owner)
        # Apache's setup describes the cluster, and Apache's brokers know no other one.
        with suppress(BadVersion):
            key = f"{CLUSTERS_ROOT}/{self._namespaces.cluster}"
            await self._store.put(key, dump(owner.cluster_data), ABSENT)
        await self.moves.open(owner.broker_id)
        self._store.listen(self._told)
        await self.members.open(owner.broker_id, self.reports.begin(owner), encode_leader(owner))
        await self.balance.open(owner.broker_id)
        self._is_joined = True

    async def owner_of_bundle(self, bundle: str, *, authoritative: bool = False) -> Owner:
        """Returns the bundle's owner, or the broker to ask next; takes the bundle where that is this broker's part.

        Raises ServiceNotReady where no broker can be chosen, and MetadataError.
        """
        self.hand_over.check(bundle)
        found = await self.leases.owner(bundle)
        if found is not None and found != self.owner:
            found = await self._dead_owners.successor(bundle, found, self.leases.owner)
        if found is not None and (found != self.owner or bundle in self.leases):
            return Owner(found)
        # Addresses of this broker without a lease are of its earlier life: every other broker sends clients here.
        if authoritative or found is not None:
            if self._is_leaving:
                # The leader has not read that it leaves. Sent back there, the client would come here again.
                raise ServiceNotReady("The broker is shutting down")
            if found is not None:
                return Owner(await self._acquire(bundle, _EARLIER_LIFE))
            return Owner(await self._acquire(bundle))
        # A leader that was read before an interruption may be a former one: clients would be sent in circles.
        self._check_certain()
        await self.members.current()
        members, leader = self.members.members, self.members.leader
        if leader is not None and self.hand_over.is_silent(leader, authoritative=False):
            leader = None  # Each bundle would wait for it.
        if leader is not None and leader in members and leader != self.owner.broker_id:
            return Owner(members[leader].addresses, is_redirect=True)
        return await self._choose(bundle)

    async def located(self, name: TopicName) -> Addresses:
        """Returns the topic's owner. The broker that the leader chooses takes a bundle without one; see the base."""
        owner = await self.owner_of(name)
        if not owner.is_redirect:
            return owner.addresses
        return await self.peers.find_owner(name, owner.addresses, authoritative=owner.authoritative)

    async def located_all(self, names: Iterable[TopicName]) -> dict[TopicName, Addresses]:
        """Returns the owner of each topic in the order of the names; raises the first error of a bundle."""
        bundles = {name: self.bundle_of(name) for name in names}
        asked = [*{bundle: name for name, bundle in bundles.items()}.items()]
        owners: dict[str, Addresses] = {}
        for first in range(0, len(asked), _LOOKUPS_AT_ONCE):
            some = asked[first : first + _LOOKUPS_AT_ONCE]
            found = await asyncio.gather(*(self.located(name) for _, name in some), return_exceptions=True)
            for (bundle, _), one in zip(some, found, strict=True):
                if isinstance(one, BaseException):
                    raise one
                owners[bundle] = one
        return {name: owners[bundle] for name, bundle in bundles.items()}

    async def _choose(self, bundle: str) -> Owner:
        is_silent = partial(self.hand_over.is_silent, authoritative=True)
        loads = {name: one.load for name, one in self.members.members.items() if not is_silent(name)}
        loads.pop(self.owner.broker_id, None)
        if not self._is_leaving:
            loads[self.owner.broker_id] = self.reports.load
        chosen = await self.balance.choose(bundle, loads)
        # A lookup that came at the same time may have taken it.
        if chosen == self.owner.broker_id or bundle in self.leases:
            # Noted until the lease is there: lookups of other bundles meanwhile would find this broker as free as before.
            self.balance.chosen[bundle] = chosen
            return Owner(await self._acquire(bundle))
        if chosen not in self.members.members:
            raise OwnerUncertain(f"Broker {chosen} has left before it could own {bundle}")
        self.balance.chosen[bundle] = chosen
        return Owner(self.members.members[chosen].addresses, is_redirect=True, authoritative=True)

    async def _acquire(self, bundle: str, why: str = LOOKUP) -> Addresses:
        try:
            self._check_certain()
            return await self.leases.acquire(bundle, partial(self.moves.note, MoveKind.TAKEN, bundle, why))
        finally:
            self.balance.chosen.pop(bundle, None)

    async def check_owned(self, name: TopicName) -> Lease | None:
        """Returns the condition for fencing, the first write of the topic's list, and the writes of its cursors.

        Raises ServiceNotReady in Apache's words, and OwnerUncertain while the store does not answer.

        The topic with policies is opened by each broker that reads or changes them, and taken from the one that had it.
        """
        if name.has_policy_events:
            return None
        bundle = self.bundle_of(name)
        is_left = bundle in self.hand_over.leaving
        if is_left or (bundle not in self.leases and not await self._is_left_over(bundle)):
            raise ServiceNotReady(
                f"Namespace bundle ({bundle}) for topic ({name}) not served by this instance:{self.owner.broker_id}."
                " Please redo the lookup."
            )
        self._check_certain()
        return partial(self._condition, name)

    def _condition(self, name: TopicName) -> Check:
        # Asked anew for each write: the lease of this session says nothing about the next session, and the bundle may
        # have been divided since.
        try:
            bundle = self.bundle_of(name)
        except NamespaceNotFound as error:
            raise MetadataError(f"{name} has no lease: {error}") from error
        if not self._is_joined:
            raise OwnerUncertain(f"this broker has no lease of {bundle} in this session")
        return self.leases.check(bundle)

    async def _is_left_over(self, bundle: str) -> bool:
        """Takes a bundle whose node an earlier life of this broker has left: lookups elsewhere send clients here."""
        if self._is_leaving or await self.leases.owner(bundle) != self.owner:
            return False
        return await self._acquire(bundle, _EARLIER_LIFE) == self.owner

    def _check_certain(self) -> None:
        if not (self._is_connected and self._is_joined):
            raise OwnerUncertain(
                "The metadata store does not answer; this broker opens nothing until it does"
            )

    def bundle_of(self, name: TopicName) -> str:
        """Returns the topic's bundle as `tenant/namespace/range`. Raises NamespaceNotFound."""
        return f"{name.namespace}/{self._bundles.of(name.namespace).of(str(name))}"

    # News of leases and of the session

    def _look_at(self, bundle: str) -> None:
        self._spawn(self._keep(bundle), f"lease of {bundle}")

    async def _keep(self, bundle: str) -> None:
        """Takes an owned bundle again, or closes its topics if another broker has it; tries until it knows."""
        while bundle in self.leases and not self._is_leaving:
            try:
                await self._take_again(bundle)
                return
            except BrokerError as error:
                # Given up here, topics would stay open without a lease.
                log.warning("! the lease of %s cannot be looked at, trying again: %s", bundle, error)
                await asyncio.sleep(RETRY_S)

    async def _take_again(self, bundle: str) -> None:
        if not await self.leases.is_kept(bundle):
            log.warning("! bundle %s is another broker's now, or divided; its topics are closed here", bundle)
            self.moves.note(MoveKind.LOST, bundle, "another broker took it after the end of a session")
            await self._close(bundle, None)

    async def _close(self, bundle: str, successor: Successor | None) -> None:
        """Closes the topics of a bundle that cannot stay, whatever one of them reports."""
        try:
            await self.close_bundle(bundle, successor)
        except BrokerError as error:
            log.warning("! topics of bundle %s: %s", bundle, error)

    def _told(self, state: SessionState) -> None:
        self._is_connected = state in (SessionState.CONNECTED, SessionState.RE_ESTABLISHED)
        if state in (SessionState.LOST, SessionState.RE_ESTABLISHED):
            # A connection that comes back does not make up for leases that are not taken yet.
            self._is_joined = False
            self._session += 1
            self.leases.end_session()
            self.members.end_session()
        if state is SessionState.CONNECTED:
            # Its watches tell too, but later than requests that have waited for the store.
            self.members.changed()
        if state is SessionState.RE_ESTABLISHED:
            self._spawn(self._return(self._session), "leases of a new session")

    async def _return(self, session: int) -> None:
        """Joins the cluster again after the end of a session; the next one that ends begins another return."""
        while session == self._session and not self._is_leaving:
            try:
                await self.members.register()
                self.members.changed()
                for bundle in self.leases:
                    await self._take_again(bundle)
            except BrokerError as error:
                # Until then nothing opens here.
                log.warning("! the leases of this broker cannot be taken again yet: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                # A return that a later one has overtaken says nothing about the present session.
                if session == self._session:
                    self._is_joined = True
                return

    # Load reports

    async def tick(self) -> None:
        """Writes the load report if it has changed enough. A leader reads the others' and balances by them."""
        if not self._is_leaving:
            await self.reports.tick()
        await self._release_ended()
        leads = self.leader == self.owner.broker_id and not self._is_leaving
        if leads:
            self.members.changed()
            try:
                await self.members.current()
            except OwnerUncertain:
                leads = False  # `Members` has logged it. Nothing is decided by what is old.
        self.balance.note(self.members.members)
        if leads:
            await self.balance.lead(self.members.members)
        await self.moves.store(self.members.members if leads else None)

    async def _release_ended(self) -> None:
        """Gives up bundles that are not there: of deleted namespaces, and divided ones. Errors are logged."""
        try:
            await self.leases.remove_left()
            ended = await self._divisions.ended(self.hand_over.staying())
        except BrokerError as error:
            log.warning("! bundles that are not there any more cannot be given up yet: %s", error)
            return
        for bundle, why in ended:
            # Topics of parts that have not come to be are those of the bundle, and stay. Others have no next owner.
            close = _keep_open if why == NOT_DIVIDED else lambda one, _: self._close(one, None)
            try:
                await self._give_up(bundle, close, why=why)
            except BrokerError as error:
                log.warning(
                    "! bundle %s, which is not there any more, is not given up yet: %s", bundle, error
                )

    # Giving bundles up

    async def unload(self, bundle: str, destination: str = "") -> None:
        """Closes the topics of a bundle and gives it up. Clients are told once the next owner has it.

        Raises MetadataError, and OwnerUncertain while that is done already, or where the session ends meanwhile.
        """
        session = self._session
        try:
            await self._give_up(bundle, self.close_bundle, to=self.brokers.get(destination))
        except MetadataError as error:
            if session == self._session:
                raise
            # Asked again, the owner of now does it.
            raise OwnerUncertain(f"The session ended while {bundle} was unloaded: {error}") from error

    async def _give_up(
        self, bundle: str, close: CloseBundle, to: Addresses | None = None, why: str = UNLOADED
    ) -> None:
        given_up = partial(self.moves.note, MoveKind.GIVEN_UP, bundle, why)
        await self.hand_over.give_up(bundle, close, self.owner, to, given_up)

    async def split(
        self, bundle: str, parts: Sequence[str], store: Callable[[Beside], Awaitable[None]]
    ) -> None:
        """Takes the parts before `store`, so that nobody else may, and gives the bundle up afterwards, as Apache.

        Raises ServiceNotReady where this broker does not own the bundle, MetadataError, and what `store` raises.
        """
        if bundle in parts:
            return  # No hash divides it.
        if self._is_leaving:
            raise ServiceNotReady("The broker is shutting down")  # New parts would not be handed over.
        self.hand_over.check(bundle)
        try:
            await self._divisions.divide(bundle, parts, self.leases, self._acquire, store)
        except BrokerError:
            await self._release_ended()
            raise

    async def at_end(self) -> None:
        """Ends the connections to other brokers."""
        await self.peers.close()

    async def leave(self) -> None:
        """Gives all bundles up, one after the other, so that other brokers take each as soon as its topics are closed.

        Failures are logged: the nodes end with the session.
        """
        self._is_leaving = True
        self.hand_over.is_stop = True
        if not self._is_connected:
            # Nothing would be stored before the end of the time to stop, and topics have acknowledgements to store.
            log.warning(
                "! the metadata store does not answer: bundles are given up by the end of the session"
            )
            return
        try:
            await self.members.leave()
        except BrokerError as error:  # Others may still ask for a lookup here, and are sent on.
            log.warning("! the registration stays until the end of the session: %s", error)
        try:
            for bundle in self.leases:
                if bundle not in self.hand_over.leaving:
                    try:
                        await self._give_up(bundle, self._close, why=_STOP)
                    except BrokerError as error:  # The others are handed over all the same.
                        log.warning("! bundle %s is given up by the end of the session: %s", bundle, error)
            await self.moves.store()
            await self.members.close()
        except BrokerError as error:
            log.warning("! bundles are given up by the end of the session: %s", error)


async def _keep_open(_bundle: str, _successor: Successor | None) -> None:
    """Closes no topic."""
