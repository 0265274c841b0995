"""Divisions of the simulated namespace's bundles, by the leader and by an operator, and the judgement of them.

* A division is stored in the session that has the leases of the bundle and of its parts. None that was stored is lost.
* The bundles cover all hashes, each once.
* A broker never answers a lookup with itself for a bundle that was divided, unless it has the parts.
* A broker that is well keeps no lease of a bundle that the namespace does not have.
* After the faults each bundle has one owner, which all brokers name.
"""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.loads import BundleLoad
from broker.cluster.records import BUNDLES
from broker.config.server_keys import AT_POSITIONS, BY_TOPICS, EQUAL
from broker.service.lifecycle.bundle_division import divide
from broker.service.namespaces.bundles import (
    HASH_MAX,
    Bundle,
    BundleRates,
    Bundles,
    bundles_of,
    hash_of,
    hashes_by_rates,
    middle_of,
)
from broker.service.namespaces.stored_policies import LOCAL_ROOT
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.sim.cluster.clients import HOPS_MAX, Unserved, call, find
from tests.sim.cluster.faults import LIFE_S
from tests.sim.cluster.process import SESSION_S, ClusterProcess, ProcessStore
from tests.sim.followers import Leader
from tests.sim.metadata import Broken

if TYPE_CHECKING:
    from tests.sim.cluster.history import ClusterHistory

NAMESPACE = "sim/cluster"
STORED = f"{LOCAL_ROOT}/{NAMESPACE}"
"""The key with the bundles of the namespace, from the first division on."""
FIRST = Bundles.equal(4)
BY_RATES = "flow_or_qps_equally_divide"
DIVIDED_MOST = 20
"""Bundles from which an operator divides none."""
FOUND_QUICKLY = 1 << 16
"""Hashes of a bundle for which a name of a topic is found in a moment."""
KEPT_S = 20.0
"""In which a broker that is well gives up a lease of a bundle that is not there: three looks, whose answers may be lost."""


class Divisions:
    """Draws from numbers of its own, so that a seed without divisions would have the same history but for them."""

    def __init__(self, history: ClusterHistory, seed: int) -> None:
        self.rng = rng = random.Random(seed ^ 0xD171DE)
        self._history = history
        self.weights = {str(one): history.rng.choice((2.0, 5.0, 40.0)) for one in FIRST.all()}
        """Load of each of the first bundles in percent of a broker; a part has its share."""
        self.balance_settings = BalanceSettings(
            history=history.rng.choice((0.0, 0.5)),
            throughput_least=0.0,
            shed_ms=5_000,
            evenly=history.rng.random() < 0.5,
            splits=rng.random() < 0.7,
            unloads_parts=rng.random() < 0.5,
            bundle_topics=rng.choice((1, 2, 1000)),
            bundle_rate=rng.choice((3, 1000)),
            namespace_bundles=rng.choice((6, 12)),
        )
        self._value: bytes | None = None
        self._bundles = FIRST
        self._kept: dict[str, float] = {}
        """Leases of bundles that are not there, and since when."""

    @property
    def bundles(self) -> Bundles:
        """The bundles of the namespace, as they are stored in this moment."""
        first = self._history.cluster.first
        assert first is not None
        if (value := first.value_of(STORED)) != self._value:
            self._value = value
            self._bundles = FIRST if value is None else Bundles.stored(json.loads(value).get("bundles"))
        return self._bundles

    def bundle_of(self, name: TopicName) -> str:
        bundles = self.bundles if name.namespace == NAMESPACE else FIRST
        return f"{name.namespace}/{bundles.of(str(name))}"

    def load_of(self, bundle: str) -> BundleLoad:
        """Returns the load that a bundle makes."""
        namespace, _, text = bundle.rpartition("/")
        if namespace != NAMESPACE:
            return BundleLoad(topics=1)
        low, high = (int(end, 16) for end in text.split("_"))
        part = Bundle(low, high)
        whole = next(one for one in FIRST.all() if one.low <= low < one.high)
        weight = self.weights[str(whole)] * (high - low) / (whole.high - whole.low)
        topics = sum(part.has(str(name)) for name in self._history.names)
        return BundleLoad(rate_in=weight, throughput_in=weight, topics=topics)

    # Requests

    async def administrate(self) -> None:
        """Divides bundles as an operator."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 12.0))
            process = self.rng.choice(self._history.places)
            if process is None or not process.is_up or len(self.bundles.boundaries) > DIVIDED_MOST:
                continue
            # As this broker knows them: a division may be news.
            bundle = str(self.rng.choice(bundles_of(process.namespaces, NAMESPACE).all()))
            self._history.spawn(self._divide_by_hand(process, bundle), "division")

    async def _divide_by_hand(self, process: ClusterProcess, bundle: str) -> None:
        self._history.note(f"{process.client.name} is asked to divide {bundle}")
        try:
            await self.request(process.addresses, f"{NAMESPACE}/{bundle}", unloads=self.rng.random() < 0.3)
        except ServiceNotReady as error:
            self._history.note(f"{bundle} is not divided: {error}")

    async def request(self, to: Addresses, bundle: str, *, unloads: bool) -> None:
        """Stands for a request to divide a bundle, which is sent on to its owner. Raises ServiceNotReady."""
        authoritative = False
        for _ in range(HOPS_MAX):
            process = self._history.at(to)
            try:
                found = await call(
                    self._history, process, partial(self._answer, process, bundle, authoritative, unloads)
                )
            except Unserved as error:
                raise ServiceNotReady(str(error)) from error
            if found is None:
                self._history.note(f"{bundle} is divided")
                return
            to, authoritative = found
        raise ServiceNotReady(f"no owner of {bundle} after {HOPS_MAX} requests")

    async def _answer(
        self, process: ClusterProcess | None, bundle: str, authoritative: bool, unloads: bool
    ) -> tuple[Addresses, bool] | None:
        """Divides the bundle, or returns the broker that a request is sent on to, as `send_to_owner` does."""
        assert process is not None
        ownership = process.ownership
        text = bundle.rpartition("/")[2]
        if any(str(one) == text for one in bundles_of(process.namespaces, NAMESPACE).all()):
            owner = (await ownership.owner_of_bundle(bundle, authoritative=authoritative)).addresses
            if owner != ownership.owner:
                return owner, ownership.leader == ownership.owner.broker_id
        found = bundles_of(process.namespaces, NAMESPACE).find(NAMESPACE, text)
        at = await self._divided_at(process, found)
        self._history.note(f"{process.client.name} divides {bundle} at {', '.join(map(hex, at))}")
        self._disturb(process, bundle)
        await divide(process.registry, NAMESPACE, found, at, unloads=unloads)
        return None

    async def _divided_at(self, process: ClusterProcess, bundle: Bundle) -> list[int]:
        algorithm = self.rng.choice((EQUAL, BY_TOPICS, BY_RATES, AT_POSITIONS))
        if algorithm == EQUAL:
            return [bundle.middle()]
        if algorithm == AT_POSITIONS:
            return self.rng.sample(range(bundle.low + 1, bundle.high), self.rng.randint(1, 3))
        names = await process.registry.names(NAMESPACE)
        hashes = sorted(hash_of(name) for name in names if bundle.has(name))
        if algorithm == BY_TOPICS:
            middle = middle_of(hashes)
            return [] if middle is None else [middle]
        rates = {one: BundleRates(self.rng.choice((1.0, 10.0)), 1.0) for one in hashes}
        return hashes_by_rates(rates, BundleRates(8.0, 100.0), 0.1)

    def _disturb(self, process: ClusterProcess, bundle: str) -> None:
        """Has something come in the middle of the division at times: a fault, or an unload."""
        history = self._history
        if history.loop.time() > LIFE_S - 2 * SESSION_S or self.rng.random() < 0.3:
            return
        if self.rng.random() < 0.2:
            history.loop.call_later(self.rng.uniform(0.0, 0.3), self._unload, process, bundle)
        else:
            history.faults.disturb_within(process, self.rng, 0.3)

    def _unload(self, process: ClusterProcess, bundle: str) -> None:
        if process.is_up and not process.client.crashed:
            self._history.note(f"{process.client.name} unloads {bundle} while it divides that")
            process.spawn(process.ownership.unload(bundle), "unload")

    # Observation

    def written(self, session: Leader, value: bytes) -> None:
        """Judges new local policies of the namespace, in the moment in which they are stored."""
        before, after = self._bundles, self.bundles
        texts = json.loads(value)["bundles"]["boundaries"]
        numbers = [int(text, 16) for text in texts]
        if numbers[0] != 0 or numbers[-1] != HASH_MAX or any(one >= two for one, two in pairwise(numbers)):
            self._history.broken(f"the bundles do not cover each hash once: {texts}")
        if lost := set(before.boundaries) - set(numbers):
            self._history.broken(f"divisions at {sorted(map(hex, lost))} are lost")
        self._history.counts.divided += after != before
        for one in set(before.all()) ^ set(after.all()):
            assert self._history.cluster.first is not None
            if self._history.cluster.first.session_of(f"{BUNDLES}/{NAMESPACE}/{one}") is not session:
                self._history.broken(f"a division from {before.all()} is stored without the lease of {one}")

    def named(self, process: ClusterProcess, bundle: str) -> None:
        """Judges the moment in which a broker names itself the owner of a bundle."""
        namespace, _, text = bundle.rpartition("/")
        key = f"{BUNDLES}/{bundle}"
        if namespace != NAMESPACE or text in self.bundles or self.holder(key) is not process:
            return
        # Its session has ended: it names itself for the topics that are open, and opens none.
        if not process.ownership._is_joined:
            return
        parts = self.bundles.overlapping(Bundle.parsed(text))
        if any(self.holder(f"{BUNDLES}/{NAMESPACE}/{one}") is not process for one in parts):
            self._history.broken(f"{process.client.name} has taken {bundle}, which was divided")

    def observe(self, now_s: float) -> None:
        """Finds leases that brokers keep although the bundles are not there."""
        kept = set()
        for bundle, process in self._strays().items():
            if process is not None and process.is_well:
                kept.add(f"{bundle} of {process.client.name}")
        self._kept = {one: self._kept.get(one, now_s) for one in kept}
        for one, since_s in self._kept.items():
            if now_s - since_s > KEPT_S:
                self._history.broken(
                    f"the lease {one} is kept since {since_s:.1f} s, and no such bundle is there"
                )

    def _strays(self) -> dict[str, ClusterProcess | None]:
        """Returns the nodes of bundles that are not there, and whose session each is."""
        first = self._history.cluster.first
        assert first is not None
        here = {f"{BUNDLES}/{NAMESPACE}/{one}" for one in self.bundles.all()}
        nodes = {key for key in first._values if key.startswith(f"{BUNDLES}/{NAMESPACE}/")} - here
        return {key: self.holder(key) for key in sorted(nodes)}

    def holder(self, key: str) -> ClusterProcess | None:
        """Returns the process whose session has the node."""
        first = self._history.cluster.first
        assert first is not None
        holder = getattr(first.session_of(key), "holder", None)
        return holder.process if isinstance(holder, ProcessStore) else None

    # The end

    async def judge(self) -> None:
        """Raises Broken for a lease without a bundle, and for a bundle that brokers disagree about."""
        if strays := {key: process for key, process in self._strays().items() if process is not None}:
            raise Broken(f"leases of bundles that are not there: {list(strays)}")
        for process in self._history.places:
            assert process is not None
            if bundles_of(process.namespaces, NAMESPACE) != self.bundles:
                raise Broken(f"{process.client.name} does not know the bundles that are stored")
            here = {f"{NAMESPACE}/{one}" for one in self.bundles.all()}
            if more := [
                one for one in process.ownership.leases if one.startswith(NAMESPACE) and one not in here
            ]:
                raise Broken(f"{process.client.name} has leases of bundles that are not there: {more}")
        for bundle in self.bundles.all():
            await self._judge_owner(bundle)

    async def _judge_owner(self, bundle: Bundle) -> None:
        if bundle.high - bundle.low < FOUND_QUICKLY:
            return
        names = (f"persistent://{NAMESPACE}/{number}" for number in count())
        name = parse_topic_name(next(name for name in names if bundle.has(name)))
        owners = set()
        for first in self._history.places:
            try:
                owners.add(await find(self._history, first, name))
            except Unserved as error:
                raise Broken(f"bundle {bundle} has no owner: {error}") from error
        if len(owners) > 1:
            raise Broken(f"brokers disagree about bundle {bundle}: {[one.client.name for one in owners]}")
