"""Events in the life of simulated brokers: faults, and the requests of administrators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.cluster.records import BROKERS, BUNDLES, LEADER
from foundation.model.errors import BrokerError
from tests.sim.cluster.process import SESSION_S, ClusterProcess, addresses
from tests.sim.followers import FollowerStore

if TYPE_CHECKING:
    from tests.sim.cluster.history import ClusterHistory

LIFE_S = 120.0
"""Simulated seconds with faults."""


class ClusterFaults:
    """Draws faults from the history's seed."""

    def __init__(self, history: ClusterHistory) -> None:
        self._history = history
        self._rng = history.rng

    async def hurt(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 12.0))
            process = self._rng.choice(self._history.places)
            if process is None or not process.is_up:
                continue
            others = [
                one for one in self._history.places if one is not None and one is not process and one.is_well
            ]
            if not others and self._rng.random() < 0.7:
                continue
            kind = self._rng.choice(
                (self._kill, self._stop, self._pause, self._cut, self._expire, self._freeze, self._jump)
            )
            kind(process)

    def _kill(self, process: ClusterProcess) -> None:
        self._history.note(f"{process.client.name} is killed")
        self._history.counts.killed += 1
        self._history.places[process.place] = None
        self._history.end(process)
        after_s = self._rng.choice((0.2, 3.0, 15.0))
        self._history.spawn(self._history.restart(process.place, self._rng.uniform(0.0, after_s)), "restart")

    def _stop(self, process: ClusterProcess) -> None:
        self._history.note(f"{process.client.name} stops")
        self._history.counts.stopped += 1
        process.disturb(1000.0)
        self._history.spawn(self._stopped(process), "stop")

    async def _stopped(self, process: ClusterProcess) -> None:
        work = process.spawn(process.stop(), "stop")
        await asyncio.wait([work], timeout=8.0)
        if self._history.places[process.place] is not process:
            # It was killed meanwhile, and its place has a process, or gets one: two would have equal addresses.
            return
        self._history.note(
            f"{process.client.name} has stopped" if work.done() else f"{process.client.name} did not stop"
        )
        self._history.places[process.place] = None
        self._history.end(process)
        await self._history.restart(process.place, self._rng.uniform(0.1, 5.0))

    def _pause(self, process: ClusterProcess) -> None:
        seconds = self._seconds(0.5, 5.0, 8.0, 14.0)
        self._history.note(f"{process.client.name} stands still for {seconds:.1f} s")
        self._history.counts.paused += 1
        process.disturb(seconds)
        process.pause(seconds)

    def _cut(self, process: ClusterProcess) -> None:
        seconds = self._seconds(0.5, 5.0, 8.0, 20.0)
        self._history.note(f"{process.client.name} is cut off for {seconds:.1f} s")
        self._history.counts.cut += 1
        process.disturb(seconds)
        process.store.cut(seconds, SESSION_S)

    def _expire(self, process: ClusterProcess) -> None:
        self._history.note(f"the session of {process.client.name} expires")
        self._history.counts.expired += 1
        process.disturb(1.0)
        process.store.expire()

    def _freeze(self, process: ClusterProcess) -> None:
        seconds = self._seconds(0.5, 2.0, 4.0)
        self._history.note(f"the follower of {process.client.name} has no leader for {seconds:.1f} s")
        self._history.counts.frozen += 1
        process.disturb(seconds)
        process.store.freeze(seconds)

    def _jump(self, process: ClusterProcess) -> None:
        self._history.counts.clock_jumps += 1
        process.clock.jump(self._rng.choice((-1, 1)) * self._rng.choice((500, 60_000, 86_400_000)))

    def disturb_opening(self, process: ClusterProcess) -> None:
        """Lets a broker lose its session at times while it opens a topic."""
        if self._history.loop.time() < LIFE_S - 2 * SESSION_S and self._rng.random() < 0.06:
            self._soon(process, 0.1)

    def disturb_within(self, process: ClusterProcess, rng: random.Random, most_s: float) -> None:
        """Has a fault, which `rng` draws, come in the middle of what a broker begins now."""
        kind = rng.choice((self._kill, self._pause, self._cut, self._expire, self._freeze))
        self._history.loop.call_later(rng.uniform(0.0, most_s), self._disturb, process, kind)

    def _soon(self, process: ClusterProcess, most_s: float) -> None:
        """Lets a broker lose its session in the middle of what it begins now."""
        kind = self._rng.choice((self._pause, self._cut, self._expire))
        self._history.loop.call_later(self._rng.uniform(0.0, most_s), self._disturb, process, kind)

    def _disturb(self, process: ClusterProcess, kind: Callable[[ClusterProcess], None]) -> None:
        if process.is_up:
            kind(process)

    def _seconds(self, *most: float) -> float:
        """Returns a duration that ends with the faults."""
        return min(
            self._rng.uniform(0.1, self._rng.choice(most)),
            max(LIFE_S - self._history.loop.time(), 0.1),
        )

    # Administrators

    async def administrate(self) -> None:
        admin = FollowerStore(self._history.cluster)
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 8.0))
            chance = self._rng.random()
            try:
                if chance < 0.6:
                    self._unload()
                elif chance < 0.8:
                    await self._remove(admin)
                else:
                    self._lose_bookie()
            except BrokerError as error:
                self._history.note(f"administrator: {error}")

    def _unload(self) -> None:
        process = self._rng.choice(self._history.places)
        if process is not None and process.is_up and (bundles := list(process.ownership.leases)):
            bundle = self._rng.choice(bundles)
            if not process.knows(bundle):
                return  # A part of a division of which it has not heard yet: the request is answered with 404.
            self._history.note(f"{process.client.name} unloads {bundle}")
            self._history.counts.unloaded += 1
            to = (
                addresses(self._rng.randrange(len(self._history.places))).broker_id
                if self._rng.random() < 0.5
                else ""
            )
            process.spawn(process.ownership.unload(bundle, to), "unload")
            if self._rng.random() < 0.3 and self._history.loop.time() < LIFE_S - 2 * SESSION_S:
                self._soon(process, 0.5)

    async def _remove(self, admin: FollowerStore) -> None:
        """Removes a node by hand that a broker relies on."""
        name = self._rng.choice(self._history.names)
        key = self._rng.choice(
            (
                f"{BUNDLES}/{self._history.bundle_of(name)}",
                LEADER,
                f"{BROKERS}/{addresses(self._rng.randrange(len(self._history.places))).broker_id}",
            )
        )
        self._history.note(f"{key} is removed by hand")
        self._history.counts.removed += 1
        await admin.delete(key)

    def _lose_bookie(self) -> None:
        if all(bookie.up for bookie in self._history.bookies):
            bookie = self._rng.choice(self._history.bookies)
            self._history.note(f"{bookie.address} dies for a while")
            self._history.counts.bookies_down += 1
            bookie.crash()
            self._history.loop.call_later(self._rng.uniform(0.01, 3.0), bookie.start)
