"""LedgerUpkeep: the work on managed ledgers that falls due with time.

Nothing in the managed ledger room has a timer; this part calls it with the time that it needs. A round over all topics has
pauses: 100,000 topics in one call held the event loop for 115 ms.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.timers import Timers
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.service.lifecycle.rounds import TopicRounds, Work
from broker.service.policies.table import COMPACTION, DEDUPLICATION_SNAPSHOTS
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry

DUE_INTERVAL_S: Final = 0.2
"""Resolution of the deadlines of reads, and of the delay before acknowledgements are stored."""
ROLL_INTERVAL_S: Final = 30.0
"""Interval of looks for ledgers that are old enough to be closed."""
BACKLOG_INTERVAL_S: Final = 60.0
"""Interval of looks at the backlogs of cursors, which decide if their reads are cached."""


class LedgerUpkeep:
    """Calls each managed ledger of a broker when something of it may be due."""

    def __init__(
        self, registry: TopicRegistry, environment: ManagedLedgerEnvironment, tasks: BackgroundTasks
    ) -> None:
        """Does nothing before `start`. `tasks` runs the rounds, and cancels them when the broker stops."""
        self._registry = registry
        self._environment = environment
        self._tasks = tasks

    def start(
        self,
        timers: Timers,
        *,
        trim_interval_s: float,
        snapshot_interval_s: float,
        compaction_interval_s: float,
    ) -> None:
        """Begins to call.

        `trim_interval_s` is `retentionCheckIntervalInSeconds`, `compaction_interval_s` is
        `brokerServiceCompactionMonitorIntervalInSeconds`; `snapshot_interval_s` is
        `brokerDeduplicationSnapshotFrequencyInSeconds`, 0 or less = never.
        """
        timers.every(DUE_INTERVAL_S, self._run_due)
        rounds: tuple[tuple[str, Work, float], ...] = (
            ("trimming", self._trim, trim_interval_s),
            ("rolling of ledgers", self._roll, ROLL_INTERVAL_S),
            ("looks at backlogs", self._check_backlogs, BACKLOG_INTERVAL_S),
            ("looks for compactions", self._compact, compaction_interval_s),
            ("snapshots of sequence ids", self._save_deduplication, snapshot_interval_s),
        )
        for title, work, interval_s in rounds:
            if interval_s > 0:
                timers.every(interval_s, partial(self._begin, TopicRounds(self._registry, title, work)))

    def _begin(self, rounds: TopicRounds) -> None:
        self._tasks.spawn(rounds.run(), rounds.title)

    def _run_due(self) -> None:
        """Stores cursors that are due; fails reads that wait too long for permits or for storage."""
        now_ns = self._environment.now_ns()
        self._environment.unsaved_cursors.write_due(now_ns)
        self._environment.reads_limiter.expire_due(now_ns)
        self._environment.read_deadlines.fire_due(now_ns)

    def _roll(self, topic: PersistentTopic) -> None:
        """Closes a ledger that has reached its greatest age, so that it can be trimmed later."""
        topic.ledger.writer.roll_if_due(self._environment.now_ns())

    def _check_backlogs(self, topic: PersistentTopic) -> None:
        topic.ledger.cursors.check_backlogs()

    def _compact(self, topic: PersistentTopic) -> None:
        """Begins the compaction of a topic that has reached its threshold."""
        # The policy last: asking for it costs the most.
        if topic.ledger.ledgers.entries and (
            threshold_bytes := self._registry.policies.of(topic.name, COMPACTION)
        ):
            topic.compaction.start_if_due(threshold_bytes)

    def _trim(self, topic: PersistentTopic) -> Awaitable[object] | None:
        """Deletes ledgers that no subscription needs and whose retention is over; begins offloads that are due."""
        now_ms = self._environment.wall_ms()
        topic.ledger.check_offloads(now_ms)
        if topic.ledger.trimming.shadows:
            return self._registry.shadows.trim(topic)
        # Only this timer trims a log without a durable cursor, as in Pulsar: a consumer that subscribes a little
        # after the first publish still finds the messages.
        topic.ledger.trimming.trim(now_ms, without_cursors=True)
        return None

    def _save_deduplication(self, topic: PersistentTopic) -> None:
        save_deduplication(topic, self._environment.now_ns())


def save_deduplication(topic: PersistentTopic, now_ns: int) -> None:
    """Saves the sequence ids of a topic that got few entries, when the time of its policy is over."""
    if topic.deduplication is not None:
        interval_s = topic.policies.of(topic.name, DEDUPLICATION_SNAPSHOTS)
        topic.deduplication.save_if_due(now_ns, interval_s, topic.access.producers)
