"""CoordinatorWatches: tells clients of Pulsar 5.0 which broker has each transaction coordinator, after every change.

A client asks once per connection (WATCH_TC_ASSIGNMENTS) and looks nothing up afterwards. No broker is told of bundles
that others hand over, so this one reads the owners every `INTERVAL_S` while a client watches. A broker alone on its
store has all coordinators for ever, and keeps no watch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinator import Spawn
from broker.service.transactions.coordinators import ASSIGN_TOPIC, Coordinators
from foundation.loop.clock import CallLater
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError, NotAllowed

INTERVAL_S: Final = 2.0
"""Seconds between two looks at the owners."""
WATCHES_MAX: Final = 100
"""Watches of one client; the official one has one."""

Assignments = list[tuple[str, str] | None]
"""`pulsar://` and `pulsar+ssl://` URL of each coordinator's broker; None while no broker has it."""


@dataclass(slots=True)
class CoordinatorWatch:
    """One watch of a client."""

    told: Assignments
    """The owners that the client knows."""
    is_ready: Callable[[], bool]
    """Returns False while the client does not read; then it is told later, and of the newest owners alone."""
    tell: Callable[[Assignments], None]
    """Sends other owners."""


class CoordinatorWatches:
    """The watches of all clients of a broker."""

    def __init__(
        self,
        registry: TopicRegistry,
        coordinators: Callable[[], Coordinators | None],
        call_later: CallLater,
        spawn: Spawn,
        now_ns: Callable[[], int],
    ) -> None:
        """`coordinators` returns those of the broker, None without transactions."""
        self._registry, self._coordinators = registry, coordinators
        self._call_later, self._spawn, self._now_ns = call_later, spawn, now_ns
        self._watches: dict[object, dict[int, CoordinatorWatch]] = {}
        """By client and watch id."""
        self._is_looking = False

    def __len__(self) -> int:
        return sum(map(len, self._watches.values()))

    async def assignments(self) -> Assignments:
        """Returns the owners of all coordinators. BrokerErrors: NotAllowed without any, others while no store answers."""
        ownership, coordinators = self._registry.ownership, self._coordinators()
        if coordinators is None:
            raise NotAllowed("Transactions are not enabled: transactionCoordinatorEnabled=false")
        by_bundle: dict[str, tuple[str, str] | None] = {}
        found: Assignments = []
        for number in range(await coordinators.count()):
            name = ASSIGN_TOPIC.with_partition(number)
            bundle = ownership.bundle_of(name)
            if bundle not in by_bundle:
                owner = await ownership.owner_of(name)
                urls = owner.addresses.service_url, owner.addresses.service_url_tls
                by_bundle[bundle] = None if owner.is_redirect else urls
            found.append(by_bundle[bundle])
        return found

    def add(self, client: object, watch_id: int, watch: CoordinatorWatch) -> None:
        """Keeps a watch, in place of one with its id. NotAllowed beyond the limit of a client."""
        if not self._registry.ownership.is_shared:
            return
        watches = self._watches.get(client, {})
        if watch_id not in watches and len(watches) >= WATCHES_MAX:
            raise NotAllowed(
                f"This connection has {WATCHES_MAX} watches of coordinators, the most; close one"
            )
        self._watches.setdefault(client, {})[watch_id] = watch
        if not self._is_looking:
            self._is_looking = True
            self._look_later()

    def end(self, client: object, watch_id: int) -> None:
        """Ends a watch; an unknown one is no error."""
        watches = self._watches.get(client)
        if watches is not None and watches.pop(watch_id, None) is not None and not watches:
            del self._watches[client]

    def lose(self, client: object) -> None:
        """Ends the watches of a client that has gone."""
        self._watches.pop(client, None)

    def _look_later(self) -> None:
        self._call_later(INTERVAL_S, self._begin_look)

    def _begin_look(self) -> None:
        self._spawn(self._look(), "watches of coordinators")

    async def _look(self) -> None:
        try:
            if self._watches:
                await self._tell(await self.assignments())
        except BrokerError:
            pass  # The store does not answer; the next look finds the owners.
        finally:
            self._is_looking = bool(self._watches)
            if self._is_looking:
                self._look_later()

    async def _tell(self, now: Assignments) -> None:
        async for client in in_slices(list(self._watches), self._now_ns):
            for watch in self._watches.get(client, {}).values():
                if watch.told != now and watch.is_ready():
                    watch.told = now
                    watch.tell(now)
