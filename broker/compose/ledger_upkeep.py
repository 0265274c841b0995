"""LedgerUpkeep: the work on managed ledgers that falls due with time.

Nothing in the managed ledger room has a timer; this part calls it with the time that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.compose.timers import Timers
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.persistent_topic import PersistentTopic
from broker.service.policies.table import COMPACTION
from broker.service.topic_registry import TopicRegistry

DUE_INTERVAL_S: Final = 0.2
"""Resolution of the deadlines of reads, and of the delay before acknowledgements are stored."""
ROLL_INTERVAL_S: Final = 30.0
"""Interval of looks for ledgers that are old enough to be closed."""
BACKLOG_INTERVAL_S: Final = 60.0
"""Interval of looks at the backlogs of cursors, which decide if their reads are cached."""


class LedgerUpkeep:
    """Calls each managed ledger of a broker when something of it may be due."""

    def __init__(self, registry: TopicRegistry, environment: ManagedLedgerEnvironment) -> None:
        """Does nothing before `start`."""
        self._registry = registry
        self._environment = environment

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
        timers.every(trim_interval_s, self._trim)
        timers.every(ROLL_INTERVAL_S, self._roll)
        timers.every(BACKLOG_INTERVAL_S, self._check_backlogs)
        timers.every(compaction_interval_s, self._compact)
        if snapshot_interval_s > 0:
            timers.every(snapshot_interval_s, self._save_deduplication)

    def _run_due(self) -> None:
        """Stores cursors that are due; fails reads that wait too long for permits or for storage."""
        now_ns = self._environment.now_ns()
        self._environment.unsaved_cursors.write_due(now_ns)
        self._environment.reads_limiter.expire_due(now_ns)
        self._environment.read_deadlines.fire_due(now_ns)

    def _roll(self) -> None:
        """Closes ledgers that have reached their greatest age, so that they can be trimmed later."""
        now_ns = self._environment.now_ns()
        for ledger in self._ledgers():
            ledger.writer.roll_if_due(now_ns)

    def _check_backlogs(self) -> None:
        for ledger in self._ledgers():
            ledger.cursors.check_backlogs()

    def _compact(self) -> None:
        """Begins the compaction of topics that have reached their threshold."""
        policies = self._registry.policies
        for topic in self._registry.topics.values():
            if isinstance(topic, PersistentTopic) and not topic.closed:
                topic.compaction.start_if_due(policies.of(topic.name, COMPACTION))

    def _trim(self) -> None:
        """Deletes ledgers that no subscription needs and whose retention is over."""
        now_ms = self._environment.wall_ms()
        for ledger in self._ledgers():
            # Only this timer trims a log without a durable cursor, as in Pulsar: a consumer that subscribes a little
            # after the first publish still finds the messages.
            ledger.trimming.trim(now_ms, without_cursors=True)

    def _save_deduplication(self) -> None:
        """Saves the sequence ids of topics that got few entries since the last time."""
        now_ns = self._environment.now_ns()
        for topic in self._topics():
            topic.save_deduplication(now_ns)

    def _ledgers(self) -> Iterator[ManagedLedger]:
        return (topic.ledger for topic in self._topics())

    def _topics(self) -> Iterator[PersistentTopic]:
        # No copy, because none of the calls opens or closes a topic before it returns. A call that awaits would need
        # one.
        return (topic for topic in self._registry.topics.values() if isinstance(topic, PersistentTopic))
