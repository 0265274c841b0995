"""Dormancy: closes topics that are idle, and opens dormant ones when something of them falls due.

`dormantTopicsAfterSeconds` switches it on. A topic falls asleep after so many seconds in which it had no client, nothing
asked for it, and nothing was added, read or acknowledged. `stays_open` names the topics that do not.

A dormant topic that is due is opened, everything that may be due is done, and it falls asleep again at once. The looks at
open topics (`broker/compose/backlog_rounds.py`, `ledger_upkeep.py`) do the same work for those.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine, Hashable, Iterable
from itertools import chain, islice, takewhile
from typing import Final, TypeVar

from broker.managed_ledger.ledger_writer import ManagedLedgerState
from broker.managed_ledger.stats import Changes
from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.lifecycle.rounds import Defects
from broker.service.lifecycle.unused_subscriptions import delete_unused_subscriptions
from broker.service.policies.table import COMPACTION
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.dormant_topics import RETRY_NS
from broker.service.topics.persistent_topic import PersistentTopic, expire, transaction_buffer
from broker.service.topics.topic import held
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError, TopicNotFound
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

AT_ONCE: Final = 20
"""Topics that fall asleep or are opened together: their writes share commits of the metadata store."""
SLOW_S: Final = 1.0
"""Time after which others are begun beside those of AT_ONCE that go on: they may wait for a bookie that does not answer."""
SLOW_MAX: Final = 200
"""Topics that take longer and are waited for before others are begun."""
DUE_PER_RUN: Final = 1_000
"""Dormant topics that one run opens at most; the others follow in the next run."""
PASSING_S: Final = 0.05
"""Time between two looks whether rounds and requests have left a topic that is to fall asleep."""
PASSING_LOOKS: Final = 20
"""Such looks, after which the topic stays open until it has been idle once more."""
T = TypeVar("T")


def stays_open(topic: PersistentTopic, kept: frozenset[str], *, came_alone: bool = False) -> bool:
    """Returns True for a topic that must not fall asleep now, beside those with clients.

    Its memory has something that the store has not and that is expensive to make again, a request or a work of it goes on,
    or closing it would change what clients find. `kept`: full names of topics to which the broker itself publishes.
    `came_alone`: the broker has opened it for what is due, with entries and without a subscription.
    """
    return topic.requests > 0 or _must_stay(topic, kept, came_alone=came_alone)


def _must_stay(topic: PersistentTopic, kept: frozenset[str], *, came_alone: bool = False) -> bool:
    # A shadow falls asleep with its source alone: what comes to the source may fall due for the shadow.
    return topic.ledger.source is not None or _would_lose(topic, kept, came_alone=came_alone)


def _would_lose(topic: PersistentTopic, kept: frozenset[str], *, came_alone: bool = False) -> bool:
    name, log_, compaction = topic.name, topic.ledger, topic.known_compaction
    if topic.closed or is_of_brokers(name, kept):
        return True
    if topic.deduplication is not None or transaction_buffer(topic) is not None:
        return True
    # The compacted ledger would be opened and closed with the topic; a run ends with it.
    if compaction is not None and (compaction.current is not None or compaction.running):
        return True
    # It is to be compacted by its threshold, or that has failed.
    if 0 < topic.policies.of(name, COMPACTION) < log_.ledgers.size_bytes:
        return True
    # Without its index, all delayed entries would be read again.
    if len(log_.delayed) or log_.store.buckets:
        return True
    if log_.is_offloading or log_.state not in (ManagedLedgerState.OPEN, ManagedLedgerState.TERMINATED):
        return True
    # Closing ends the ledger, and retention counts from there: without a subscription nothing else keeps the entries. One
    # that came so has them in ledgers that have ended, which the round for open topics would remove.
    if _has_entries_alone(topic) and not came_alone:
        return True
    if any(one not in topic.subscriptions for one in log_.cursors.by_name):
        return True
    settings = log_.context.settings
    for one in topic.subscriptions.values():
        if not one.durable or one.resetting or one.transactional is not None or one.name in INTERNAL_CURSORS:
            return True
        info = one.cursor.acks.info(settings.ack_ranges_max, settings.batch_ack_sets_max)
        # Acknowledgements that memory alone has.
        if info.left_out or info.batches_left_out or one.cursor.store.left_out:
            return True
    return False


def _has_entries_alone(topic: PersistentTopic) -> bool:
    return bool(topic.ledger.ledgers.entries) and not topic.subscriptions and topic.ledger.source is None


def is_of_brokers(name: TopicName, kept: frozenset[str]) -> bool:
    """Returns True for a topic that brokers use for themselves; `kept` as in `stays_open`."""
    return name.is_system or name.local.startswith("__") or str(name) in kept


def has_clients(topic: PersistentTopic) -> bool:
    """Returns True while a producer or a consumer is connected, or waits."""
    access = topic.access
    return bool(access.producers or access.waiting) or any(
        one.consumers for one in topic.subscriptions.values()
    )


def _is_needed(topic: PersistentTopic, kept: frozenset[str], *, came_alone: bool) -> bool:
    return topic.requests > 0 or has_clients(topic) or _would_lose(topic, kept, came_alone=came_alone)


async def _let_pass(topics: Iterable[PersistentTopic]) -> None:
    """Waits a moment while a round or a request has one of the topics.

    Rounds and this look begin at the same times, so a round that waits for a read would keep its topics awake for ever.
    """
    for _ in range(PASSING_LOOKS):
        if not any(one.requests for one in topics):
            return
        await asyncio.sleep(PASSING_S)


def activity(topic: PersistentTopic) -> Hashable:
    """Returns a value that changes with everything that is done with the topic.

    Reads of single entries do not count: quotas and expiry make them in their rounds.
    """
    stats = topic.ledger.stats
    acks = [(one.cursor.mark_delete_position, one.cursor.backlog) for one in topic.subscriptions.values()]
    return topic.asked, stats.entries_added, stats.entries_read, *acks


class Dormancy:
    """Decides which topics of a broker are dormant."""

    def __init__(
        self, registry: TopicRegistry, inactive: InactiveTopicRounds, kept: frozenset[str] = frozenset()
    ) -> None:
        """`inactive` deletes unused topics; `kept` as in `stays_open`."""
        self._registry = registry
        self._inactive = inactive
        self.kept = kept
        """Topics of the broker itself."""
        # Topics without clients, with their `activity` when they were last looked at, and the time of that, which rises.
        self._idle: dict[PersistentTopic, tuple[tuple[Hashable, ...], int]] = {}
        # Topics that were opened or that a client has left; None while topics do not fall asleep.
        self._perhaps_idle: Changes | None = None
        self._slow = set[asyncio.Task[None]]()
        """Topics that take long to fall asleep or to be done with, of all runs."""
        self.title = "dormant topics"
        """Name of the work, for log lines."""
        self.running = False
        """True during a run; the next one leaves itself out."""

    async def run(self) -> None:
        """Lets idle topics fall asleep, does what is due, and frees closed topics; to be called every few seconds."""
        if self.running:
            return
        self.running = True
        defects = Defects()
        try:
            try:
                ready = await self._ready_to_sleep()
                await _begin(self._slow, (self._sleep(topic, asked, defects) for topic, asked in ready))
                due = self._registry.dormant.take_due(self._registry.now_ns(), DUE_PER_RUN)
                await _begin(self._slow, (self._do_due(name, defects) for name in due), collects=True)
                async for _ in in_slices(self._registry.ended.take_apart(), self._registry.now_ns):
                    pass
            finally:
                # Before the slow ones end: the next run does not wait for them.
                self.running = False
            await _end(self._slow)
        finally:
            defects.report(self.title)

    async def do_due(self, due: Iterable[str]) -> None:
        """Opens these topics, does what is due, and lets them fall asleep again."""
        defects, slow = Defects(), set[asyncio.Task[None]]()
        await _begin(slow, (self._do_due(name, defects) for name in due), collects=True)
        await _end(slow)
        defects.report(self.title)

    async def _ready_to_sleep(self) -> list[tuple[PersistentTopic, tuple[int, ...]]]:
        """Returns the topics that have been idle for long enough, with their `_asked_of_group`.

        Looks at each idle one once in that time.
        """
        registry, idle = self._registry, self._idle
        after_ns = registry.settings.dormant_after_s * NS_PER_SECOND
        perhaps_idle = registry.environment.perhaps_idle
        if not after_ns:
            idle.clear()
            if self._perhaps_idle is not None:
                perhaps_idle.forget(self._perhaps_idle)
                self._perhaps_idle = None
            return []
        names: Iterable[str] = ()
        if self._perhaps_idle is None:
            self._perhaps_idle = perhaps_idle.follow()
            names = (topic.name.ledger_name for topic in [*registry.topics.values()])
        names = chain(names, self._perhaps_idle.take())
        now_ns = registry.now_ns()
        async for name in in_slices(names, registry.now_ns):
            topic = registry.topics.get(str(TopicName.of_ledger_name(name)))
            if isinstance(topic, PersistentTopic) and topic not in idle and not has_clients(topic):
                idle[topic] = self._activity_of_group(topic), now_ns
        due = takewhile(lambda one: idle[one][1] <= now_ns - after_ns, [*idle])
        ready: list[tuple[PersistentTopic, tuple[int, ...]]] = []
        async for topic in in_slices(due, registry.now_ns):
            then, _ = idle.pop(topic)
            # When the last client leaves, the topic is noted again.
            if topic.closed or has_clients(topic):
                continue
            now = self._activity_of_group(topic)
            if now == then and None not in now and not _must_stay(topic, self.kept):
                ready.append((topic, self._asked_of_group(topic)))
            # At the end: `idle` stays in the order of these times.
            idle[topic] = now, now_ns
        return ready

    def _activity_of_group(self, topic: PersistentTopic) -> tuple[Hashable, ...]:
        """Returns the activity of the topics that fall asleep together, None for one with clients."""
        return tuple(None if has_clients(one) else activity(one) for one in self._with_shadows(topic))

    def _asked_of_group(self, topic: PersistentTopic) -> tuple[int, ...]:
        """Returns how often somebody has asked for each of the topics that fall asleep together."""
        return tuple(one.asked for one in self._with_shadows(topic))

    def _with_shadows(self, topic: PersistentTopic) -> list[PersistentTopic]:
        """Returns the topics that fall asleep together, a source last."""
        open_here = self._registry.topics
        names = [str(TopicName.of_ledger_name(one)) for one in topic.ledger.shadows]
        found = [one for name in names if isinstance(one := open_here.get(name), PersistentTopic)]
        return [*found, topic]

    async def _sleep(
        self, topic: PersistentTopic, asked: tuple[int, ...], defects: Defects, *, came_alone: bool = False
    ) -> None:
        """Lets the topic fall asleep with its shadows, unless somebody has asked for one since `asked` was taken.

        A request that has the topic may wait, for a schema perhaps, before its client is one of the topic's.
        `came_alone` as in `stays_open`.
        """
        try:
            group = self._with_shadows(topic)
            oldest_ms = [await _oldest_ms(one) for one in group]
            await _let_pass(group)
            # A client may have come meanwhile.
            if (
                asked != self._asked_of_group(topic)
                or stays_open(topic, self.kept, came_alone=came_alone)
                or any(_is_needed(one, self.kept, came_alone=came_alone) for one in group)
            ):
                return
            for one, one_ms, times in zip(group, oldest_ms, asked, strict=True):
                if one.asked != times or _is_needed(one, self.kept, came_alone=came_alone):
                    # While the shadows before it closed. They are woken, because none sleeps while its source is open.
                    if not topic.closed:
                        self._registry.shadows.opened(topic)
                    return
                await self._registry.fall_asleep(one, one_ms)
        except BrokerError as error:
            log.warning("! %s could not be closed as dormant: %s", topic.name, error)
        except Exception as error:  # noqa: BLE001
            # A defect that one topic meets must not keep all later ones open.
            defects.add(str(topic.name), error)

    async def _do_due(self, name: str, defects: Defects) -> None:
        try:
            topic = await self._registry.get(parse_topic_name(name), create=False)
            if isinstance(topic, PersistentTopic):
                # One that somebody else has asked for falls asleep when it has been idle.
                is_ours, asked = topic.asked == 1, self._asked_of_group(topic)
                came_alone = _has_entries_alone(topic)
                with held(topic):
                    await self._do_work(topic, trims=not came_alone)
                if is_ours and self._registry.settings.dormant_after_s and not topic.closed:
                    await self._sleep(topic, asked, defects, came_alone=came_alone)
                if is_ours and topic.asked == 1:
                    self._registry.ended.had_no_user(topic)
        except TopicNotFound:
            pass  # Deleted meanwhile.
        except BrokerError as error:
            log.warning("! what is due for %s is tried again later: %s", name, error)
            self._note_failed(name)
        except Exception as error:  # noqa: BLE001
            # As in `_sleep`.
            defects.add(name, error)
            self._note_failed(name)
        finally:
            # One that could not be opened is dormant still, without a moment.
            record = self._registry.dormant.get(name)
            if record is not None and record.due_ns < self._registry.now_ns():
                self._registry.dormant.plan(name, self._registry.now_ns() + RETRY_NS)

    def _note_failed(self, name: str) -> None:
        """Has the filling try again a topic without a record that could not be opened."""
        if name not in self._registry.topics:
            self._registry.dormant.note_missing(name, failed=True)

    async def _do_work(self, topic: PersistentTopic, *, trims: bool) -> None:
        # First: a topic that a backlog keeps in use is unused from the end of the backlog on, not from before it.
        await self._inactive.look_at(topic)
        if not topic.closed:
            await expire(topic)
            await topic.quotas.look()
            await delete_unused_subscriptions(topic)
            # Messages without a subscription stay until somebody opens their topic, as without dormancy.
            if trims:
                await self._registry.shadows.trim(topic)
            # The topic stays open until the copies are made.
            topic.ledger.check_offloads(self._registry.environment.wall_ms())


async def _oldest_ms(topic: PersistentTopic) -> int:
    """Returns the time of the first entry that a subscription has not acknowledged; NOT_KNOWN without one."""
    waiting = [one.cursor for one in topic.subscriptions.values() if one.cursor.backlog]
    if not waiting:
        return NOT_KNOWN
    slowest = min([cursor.mark_delete_position for cursor in waiting])
    try:
        found = await topic.positions.time_of(topic.ledger.ledgers.next_valid(slowest))
    except BrokerError:
        return NOT_KNOWN  # An entry that is lost, or a bookie that does not answer: the look when it is due tells more.
    return NOT_KNOWN if found is None else found


async def _begin(
    running: set[asyncio.Task[None]],
    works: Iterable[Coroutine[object, object, None]],
    *,
    collects: bool = False,
) -> None:
    """Begins these works, AT_ONCE together, and leaves those in `running` that take long: they hold up no others.

    `collects`: each group of topics leaves objects for Python's garbage collector to look at.
    """
    try:
        for group in in_groups(works):
            begun = [asyncio.ensure_future(work) for work in group]
            running.update(begun)
            for task in begun:
                task.add_done_callback(running.discard)
            await asyncio.wait(begun, timeout=SLOW_S)
            while len(running) >= SLOW_MAX:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if collects and len(group) == AT_ONCE:
                # Due topics leave 200 objects each, which stay for two minutes. A pass of Python's garbage collector over
                # 4,000 takes 5 ms; left to itself, it would look at 10,000 at once, for 10 to 14 ms.
                gc.collect(1)
    except asyncio.CancelledError:
        _cancel(running)
        raise


async def _end(running: set[asyncio.Task[None]]) -> None:
    """Waits for works that go on, or cancels them with the caller, which the broker does when it stops."""
    try:
        if running:
            await asyncio.wait(running)
    except asyncio.CancelledError:
        _cancel(running)
        raise


def _cancel(running: Iterable[asyncio.Task[None]]) -> None:
    for task in [*running]:
        task.cancel()


def in_groups(items: Iterable[T]) -> Iterable[list[T]]:
    """Yields lists of AT_ONCE items."""
    rest = iter(items)
    while group := list(islice(rest, AT_ONCE)):
        yield group
