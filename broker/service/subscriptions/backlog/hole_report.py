"""HoleReport: the unacknowledged entries of a subscription that were read, where they are, and since when.

`report` walks them in slices, so a million holes hold the loop no longer than a few.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.service.subscriptions.backlog.holes import Hole, next_holes, serving_dispatcher
from broker.service.subscriptions.backlog.open_runs import open_runs
from broker.service.subscriptions.dispatch.places import Place, Whereabouts
from broker.service.subscriptions.dispatch.single_active_dispatcher import SingleActiveDispatcher
from broker.service.subscriptions.hole_watch import HoleLook, read_between
from broker.service.subscriptions.subscription import Subscription
from foundation.model.position import EARLIEST, Position


@dataclass(slots=True)
class HoleRun:
    """Consecutive unacknowledged entries of one ledger that are in the same place."""

    first: Position
    """The first of them."""
    last_entry: int
    """Entry id of the last one."""
    where: Whereabouts
    """Their place."""
    read_after: HoleLook | None = None
    """The last look before the first entry was read; None = not known."""
    read_before: HoleLook | None = None
    """The first look after it was read; None = it was read since the last look."""


@dataclass(slots=True)
class HoleReport:
    """All holes by their place, and the first ones in detail."""

    places: Counter[Place] = field(default_factory=Counter)
    """Entries by place."""
    consumers: Counter[str] = field(default_factory=Counter)
    """Entries that are pending, by the name of the consumer."""
    runs: list[HoleRun] = field(default_factory=list)
    """The first runs, in order."""
    runs_left_out: int = 0
    """Further runs."""

    def add(self, run: HoleRun, looks: Sequence[HoleLook], runs_max: int) -> None:
        """Adds a run after all others."""
        entries = run.last_entry - run.first.entry_id + 1
        self.places[run.where.place] += entries
        if run.where.consumer is not None:
            self.consumers[run.where.consumer.name] += entries
        if len(self.runs) < runs_max:
            run.read_after, run.read_before = read_between(looks, run.first)
            self.runs.append(run)
        else:
            self.runs_left_out += 1


async def report(subscription: Subscription, runs_max: int) -> HoleReport:
    """Returns the holes of a subscription, at most `runs_max` runs of them in detail."""
    found = HoleReport()
    looks = [] if subscription.holes is None else subscription.holes.looks
    dispatcher = serving_dispatcher(subscription)
    if dispatcher is None:
        await _report_single(subscription, found, runs_max)
        return found
    at: Position | None = EARLIEST
    run: HoleRun | None = None
    while at is not None:
        holes, at = next_holes(subscription, dispatcher, at, subscription.cursor.read_position)
        for hole in holes:
            if run is not None and _continues(run, hole):
                run.last_entry += 1
                continue
            if run is not None:
                found.add(run, looks, runs_max)
            run = HoleRun(Position(*hole.key), hole.key[1], hole.where)
        await asyncio.sleep(0)
    if run is not None:
        found.add(run, looks, runs_max)
    return found


def _continues(run: HoleRun, hole: Hole) -> bool:
    return hole.key == (run.first.ledger_id, run.last_entry + 1) and hole.where == run.where


async def _report_single(subscription: Subscription, found: HoleReport, runs_max: int) -> None:
    """Reports a subscription without tracked entries: what was read is with the active consumer, if there is one."""
    dispatcher = subscription.dispatcher
    active = dispatcher.active if isinstance(dispatcher, SingleActiveDispatcher) else None
    where = Whereabouts(Place.AHEAD) if active is None else Whereabouts(Place.CONSUMER, active)
    end = subscription.cursor.read_position if active is not None else subscription.cursor.acks.beyond.last()
    async for one in open_runs(subscription.cursor):
        if (one.ledger_id, one.first) >= end:
            break
        last = min(one.last, end[1] - 1) if one.ledger_id == end[0] else one.last
        found.add(HoleRun(Position(one.ledger_id, one.first), last, where), (), runs_max)
