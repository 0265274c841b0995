"""Balance: where bundles go, by the loads of the brokers. The leader chooses owners, moves bundles and divides them.

Every broker keeps averages of all bundles, from the load reports that it reads anyway, so that a new leader knows them.
Decisions are the pure functions of `placement`, `isolation`, `shedding` and `splitting`; the owner of a bundle gets them as
the requests that an administrator would send: unload to a broker, split.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.isolation import faults_for, faults_of, permitted
from broker.cluster.loads import UNSEEN_AVERAGE, BrokerLoad, BundleAverage, rate_of
from broker.cluster.orders import Orders
from broker.cluster.placement import apart, fewest, least_loaded, with_few_topics
from broker.cluster.records import (
    BROKER_AVERAGES,
    BUNDLE_AVERAGES,
    Member,
    encode_averages,
    encode_bundle,
)
from broker.cluster.shedding import may_move, shed
from broker.cluster.splitting import too_large
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.clusters import BROKERS, ClusterNotFound, Clusters
from broker.service.namespaces.documents import DocumentUnreadable
from broker.service.namespaces.namespaces import Namespaces
from foundation.model.errors import BrokerError, OwnerUncertain, ServiceNotReady
from foundation.value import Json

log = logging.getLogger("magnetar")

SYSTEM: Final = "pulsar/system"
"""The namespace whose bundles are always spread evenly."""
GROUP: Final = "namespaceAntiAffinityGroup"
"""The policy with the anti-affinity group of a namespace."""
STORED_PER_BROKER: Final = 10
"""Bundles whose averages are stored, for each broker: Apache's `loadBalancerMaxNumberOfBundlesInBundleLoadReport`."""
_NO_AVERAGES: Final = encode_averages(())


class BalanceCounts(NamedTuple):
    """Numbers of a leader's decisions since the start of this broker."""

    brokers: int = 0
    """Brokers that have shed bundles, once for each round."""
    moved: int = 0
    """Bundles that were moved."""
    divided: int = 0
    """Bundles that were divided."""


class Rules(NamedTuple):
    """The rules of administrators about brokers and bundles."""

    policies: Mapping[str, Json]
    """Isolation policies by name."""
    domains: Mapping[str, str]
    """Failure domains by broker; empty where they are not obeyed."""


class Balance:
    """Bundles are named `tenant/namespace/range`."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        settings: Callable[[], BalanceSettings],
        now_ms: Callable[[], int],
        orders: Orders,
    ) -> None:
        self.averages: dict[str, BundleAverage] = {}
        """Of every bundle that a report shows."""
        self.chosen: dict[str, str] = {}
        """Brokers that this one has chosen as the leader, by bundle, until their report can show it."""
        self.counts = BalanceCounts()
        """Numbers of its decisions as the leader."""
        self._store = store
        self._namespaces = namespaces
        self._clusters = Clusters(store, namespaces.cluster)
        self._settings = settings
        self._now_ms = now_ms
        self._orders = orders
        self._sampled: dict[str, int] = {}
        """By broker: the time of the report that was taken in last."""
        self._usages: dict[str, float] = {}
        """By broker: the average of its use, as `shed` computes it."""
        self._recent: dict[str, int] = {}
        """Bundles that were moved lately, and when."""
        self._stored: set[str] = set()
        """Bundles whose averages this broker has stored."""
        self._faults: list[str] = []
        """Faults of the rules, as logged last."""
        self._shed_due_ms = self._store_due_ms = 0
        self._is_busy = False

    def note(self, members: Mapping[str, Member]) -> None:
        """Takes new reports in, as one more sample of each bundle, and forgets bundles that nobody has."""
        for name, member in members.items():
            if self._sampled.get(name) != member.updated_ms:
                for bundle, load in member.load.bundles.items():
                    self.averages[bundle] = self.averages.get(bundle, UNSEEN_AVERAGE).after(load)
        self._sampled = {name: member.updated_ms for name, member in members.items()}
        held = {bundle for member in members.values() for bundle in member.load.bundles}
        self.averages = {bundle: one for bundle, one in self.averages.items() if bundle in held}
        self.chosen = {
            bundle: name
            for bundle, name in self.chosen.items()
            if name in members and bundle not in members[name].load.bundles
        }

    async def choose(self, bundle: str, loads: Mapping[str, BrokerLoad]) -> str:
        """Returns the broker that shall own the bundle; the same until its report shows that it does.

        `loads`: of the brokers that may have it. Raises ServiceNotReady where none may, OwnerUncertain where that is
        because of a policy that cannot be read, and MetadataError.
        """
        rules = await self._rules()
        # Asked twice, also at the same time, the answer stays the same until the broker has taken the bundle.
        before = self.chosen.get(bundle, "")
        if before in loads:
            return before
        found = self._placed(bundle, loads, rules, set(loads))
        if not found:
            if faults := faults_for(bundle.rpartition("/")[0], rules.policies):
                # Clients close their connection at ServiceNotReady, with all producers of other topics.
                raise OwnerUncertain(f"No broker was available to own {bundle}: {faults}")
            raise ServiceNotReady(f"No broker was available to own {bundle}")
        return found

    def _placed(self, bundle: str, loads: Mapping[str, BrokerLoad], rules: Rules, among: set[str]) -> str:
        """Returns the broker among some of them that shall own the bundle; empty where none may."""
        settings = self._settings()
        namespace = bundle.rpartition("/")[0]
        held = self._held(loads)
        candidates = permitted(namespace, among, rules.policies)
        topics = {name: self._topics(name, loads) for name in candidates}
        found = with_few_topics(candidates, topics, settings.topics)
        if (counts := self._of_group(namespace, held)) is not None:
            found = apart(found, counts, rules.domains)
        if settings.evenly or namespace == SYSTEM:
            found = fewest(found, {name: _in(namespace, held[name]) for name in found})
        used = {name: loads[name].used(settings.weights) for name in candidates}
        rates = {name: rate_of(held[name], self.averages) for name in candidates}
        found = least_loaded(found, used, rates, settings.overloaded)
        if all(used[name] > settings.overloaded for name in found):
            # All that were left are overloaded; another one may do better.
            found = least_loaded(candidates, used, rates, settings.overloaded)
        return min(found, key=lambda name: (len(held[name]), name), default="")

    def _held(self, loads: Mapping[str, BrokerLoad]) -> dict[str, list[str]]:
        """Returns the bundles of each broker, with those that are on their way to it, once each."""
        held = {name: [*load.bundles] for name, load in loads.items()}
        for bundle, name in self.chosen.items():
            if name in held and bundle not in loads[name].bundles:
                held[name].append(bundle)
        return held

    def _topics(self, name: str, loads: Mapping[str, BrokerLoad]) -> int:
        coming = [bundle for bundle, to in self.chosen.items() if to == name]
        return loads[name].total.topics + sum(
            self.averages[bundle].topics for bundle in coming if bundle in self.averages
        )

    def _of_group(self, namespace: str, held: Mapping[str, Iterable[str]]) -> dict[str, int] | None:
        """Returns the number of namespaces of the same anti-affinity group at each broker; None without a group."""
        group = self._group(namespace)
        if group is None:
            return None
        found = {}
        for name, bundles in held.items():
            namespaces = {bundle.rpartition("/")[0] for bundle in bundles}
            found[name] = sum(self._group(one) == group for one in namespaces)
        return found

    def _group(self, namespace: str) -> str | None:
        found = self._namespaces.policy(namespace, GROUP)
        return found.lower() if isinstance(found, str) else None

    async def _rules(self) -> Rules:
        policies: Mapping[str, Json] = {}
        domains: dict[str, str] = {}
        faults: list[str] = []
        try:
            policies = await self._clusters.isolation_policies(self._clusters.own)
        except ClusterNotFound:
            pass  # None was ever stored.
        except DocumentUnreadable as error:
            faults.append(f"{error}; no isolation policy is obeyed; set the policies anew")
        faults += faults_of(policies)
        if self._settings().domains:
            try:
                found = await self._clusters.domains(self._clusters.own)
            except DocumentUnreadable as error:
                faults.append(f"{error}; no failure domain is obeyed; delete that node")
                found = {}
            for name, domain in found.items():
                brokers = domain.get(BROKERS)
                domains |= dict.fromkeys(map(str, brokers if isinstance(brokers, list) else ()), name)
        for fault in faults:
            if fault not in self._faults:
                log.error("! %s", fault)
        self._faults = faults
        return Rules(policies, domains)

    # The work of the leader

    async def lead(self, members: Mapping[str, Member]) -> None:
        """Moves and divides bundles, and stores averages, each when it is due. Errors are logged."""
        settings = self._settings()
        if not settings.enabled or self._is_busy:
            return
        self._is_busy = True
        try:
            if len(members) > 1:
                if settings.splits:
                    await self._divide(members, settings)
                if settings.sheds and self._now_ms() >= self._shed_due_ms:
                    self._shed_due_ms = self._now_ms() + settings.shed_ms
                    await self._shed(members, settings)
            if self._now_ms() >= self._store_due_ms:
                self._store_due_ms = self._now_ms() + settings.store_ms
                await self._store_averages(members)
        except BrokerError as error:
            log.warning("! the load of the cluster is not balanced: %s", error)
        finally:
            self._is_busy = False

    async def _shed(self, members: Mapping[str, Member], settings: BalanceSettings) -> None:
        oldest_ms = self._now_ms() - settings.grace_ms
        self._recent = {bundle: at_ms for bundle, at_ms in self._recent.items() if at_ms >= oldest_ms}
        loads = {name: member.load for name, member in members.items()}
        movable = {
            bundle: average
            for bundle, average in self.averages.items()
            if may_move(bundle) and bundle.rpartition("/")[0] not in settings.excluded
        }
        found = shed(self._usages, loads, movable, self._recent, settings)
        self._usages = found.usages
        rules = await self._rules()
        for source, bundles in found.bundles.items():
            # A broker above the average would have to give the bundle on.
            among = {name for name in loads if found.usages[name] < found.average}
            reason = f"it used {_percent(found.usages[source])} and the brokers {_percent(found.average)} on average"
            moved = 0
            for bundle in bundles:
                to = self._better(bundle, source, loads, rules, among)
                moved += bool(to) and await self._move(bundle, source, to, reason)
            self.counts = self.counts._replace(
                brokers=self.counts.brokers + bool(moved), moved=self.counts.moved + moved
            )

    def _better(
        self, bundle: str, source: str, loads: Mapping[str, BrokerLoad], rules: Rules, among: set[str]
    ) -> str:
        """Returns the broker among some that shall have a bundle of a busy one; empty where none may."""
        to = self._placed(bundle, loads, rules, among)
        counts = self._of_group(bundle.rpartition("/")[0], self._held(loads))
        if to and counts is not None and counts[to] >= counts[source]:
            return ""  # The namespaces of the group would be less apart.
        return to

    async def _move(self, bundle: str, source: str, to: str, reason: str) -> bool:
        log.info("bundle %s moves from %s to %s: %s", bundle, source, to, reason)
        # Before the move: it counts for the next choice of this round.
        self.chosen[bundle] = to
        try:
            await self._orders.move(bundle, source, to, reason)
        except BrokerError as error:
            self.chosen.pop(bundle, None)
            log.warning("! bundle %s has not been moved to %s: %s", bundle, to, error)
            return False
        self._recent[bundle] = self._now_ms()
        return True

    async def _divide(self, members: Mapping[str, Member], settings: BalanceSettings) -> None:
        owners = {bundle: name for name, member in members.items() for bundle in member.load.bundles}
        known = {
            namespace: {str(one) for one in bundles_of(self._namespaces, namespace).all()}
            for namespace in {bundle.rpartition("/")[0] for bundle in owners}
            if self._namespaces.exists(namespace)
        }
        counts = {namespace: len(bundles) for namespace, bundles in known.items()}
        loads = (member.load for member in members.values())
        unload = "true" if settings.unloads_parts else "false"
        for bundle, why in too_large(loads, self.averages, counts, settings).items():
            namespace, _, text = bundle.rpartition("/")
            # The report of its owner may be of before a division.
            if text not in known.get(namespace, ()):
                continue
            log.info("bundle %s of %s is divided: %s", bundle, owners[bundle], why)
            self.averages.pop(bundle, None)
            try:
                await self._orders.divide(bundle, owners[bundle], unload, f"it had {why}")
            except BrokerError as error:
                log.warning("! bundle %s has not been divided: %s", bundle, error)
            else:
                self.counts = self.counts._replace(divided=self.counts.divided + 1)

    async def _store_averages(self, members: Mapping[str, Member]) -> None:
        """Stores the averages of the busiest bundles and of all brokers, as Apache's leader does for the next one."""
        most = STORED_PER_BROKER * len(members)
        busiest = sorted(self.averages, key=lambda one: -self.averages[one].short.throughput)[:most]
        for bundle in busiest:
            await self._store.put(f"{BUNDLE_AVERAGES}/{bundle}", encode_bundle(self.averages[bundle]))
        for bundle in sorted(self._stored - self.averages.keys()):
            await self._store.delete(f"{BUNDLE_AVERAGES}/{bundle}")
        self._stored = (self._stored & self.averages.keys()) | set(busiest)
        for name, member in members.items():
            averages = (self.averages[one] for one in member.load.bundles if one in self.averages)
            await self._store.put(f"{BROKER_AVERAGES}/{name}", encode_averages(averages))
        for name in await self._store.children(BROKER_AVERAGES):
            if name not in members:
                await self._store.delete(f"{BROKER_AVERAGES}/{name}")

    async def open(self, name: str) -> None:
        """Stores averages of nothing for the broker `name`, as Apache's does at its start. Raises MetadataError."""
        await self._store.put(f"{BROKER_AVERAGES}/{name}", _NO_AVERAGES)


def _in(namespace: str, bundles: Iterable[str]) -> int:
    return sum(bundle.rpartition("/")[0] == namespace for bundle in bundles)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
