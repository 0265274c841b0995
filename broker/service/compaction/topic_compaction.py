"""TopicCompaction: the compaction of one topic: its state, its horizon, and the compacted ledger in use.

The cursor `__compaction` is acknowledged through the horizon, and its property `CompactedTopicLedger` names the compacted
ledger, as in Pulsar. Both are stored in one write. Steps of a change, and the outcome of a crash after each:

    1  the list names the new ledger beside it, and the ledger begins   the next open removes the new ledger
    2  the new ledger is written and closed                             the next open removes the new ledger
    3  readers use the new ledger; the cursor is stored                 before the write: as 2; after it: as 4
    4  the former ledger is removed                                     the next open removes the former ledger

Trimming is held at the stored horizon until step 3 is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.settings import ServiceSettings
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import BadVersion, BrokerError, MetadataError
from foundation.model.position import LATEST
from foundation.model.topic_name import TopicName

if TYPE_CHECKING:
    from broker.compaction.passes import PassesSettings
    from broker.compaction.worker_process import Worker
    from broker.service.compaction.compaction_run import RunCounts

log = logging.getLogger("magnetar")

LEDGER_PROPERTY: Final = "CompactedTopicLedger"
"""Pulsar's name for the cursor's property with the compacted ledger's id."""
STORE_RETRY_S: Final = 1.0
"""Pause between two attempts to store the horizon."""


class CompactionRunning(BrokerError):
    """A compaction of the topic is running already."""

    status = 409
    """HTTP status of the answer."""


class CompactionStatus(StrEnum):
    """State of a topic's compaction since the topic was opened, with Pulsar's words."""

    NOT_RUN = "NOT_RUN"
    """None has begun."""
    RUNNING = "RUNNING"
    """One runs, or waits for the one of another topic to end."""
    SUCCESS = "SUCCESS"
    """The last one succeeded."""
    ERROR = "ERROR"
    """The last one failed."""


StartWorker: TypeAlias = "Callable[[PassesSettings], Awaitable[Worker]]"
"""Starts a worker for one compaction. OSError when the system refuses."""


class Compactor:
    """All that the compactions of a broker's topics share."""

    def __init__(self, start_worker: StartWorker) -> None:
        """`start_worker` is called once per compaction."""
        self.start_worker = start_worker
        """Starts the worker of one compaction."""
        self.one_at_a_time = asyncio.Semaphore(1)
        """A worker uses a processor and memory for keys, so a second compaction waits."""


@dataclass(slots=True)
class CompactionCounts:
    """Counts of one topic since it was opened."""

    succeeded: int = 0
    """Compactions that succeeded."""
    failed: int = 0
    """Compactions that failed."""
    removed: int = 0
    """Messages that compactions removed."""
    last_removed: int = 0
    """Messages that the last successful one removed."""
    last_succeeded_ms: int = 0
    """Wall clock of its end, 0 = none."""
    last_failed_ms: int = 0
    """Wall clock of the last failure, 0 = none."""
    last_duration_ms: int = 0
    """Duration of the last compaction."""
    last_read_bytes: int = 0
    """Bytes of entries that the last one read, in both passes."""
    last_written_bytes: int = 0
    """Bytes of entries that the last one wrote."""


NO_COUNTS: Final = CompactionCounts()
"""Of every topic that was not compacted since it was opened. Nothing is ever counted here."""


class CompactedTopic(Protocol):
    """The topic, as far as its compaction uses it."""

    name: TopicName
    """Full name."""
    ledger: ManagedLedger
    """The topic's log."""
    settings: ServiceSettings
    """Current values."""

    async def compaction_cursor(self) -> ManagedCursor:
        """Opens the cursor `__compaction` with its subscription."""
        ...


class TopicCompaction:
    """One per persistent topic; it costs nothing until the topic is compacted."""

    __slots__ = (
        "_compactor",
        "_ledger",
        "_task",
        "_topic",
        "counts",
        "current",
        "last_error",
        "status",
    )

    def __init__(self, topic: CompactedTopic, compactor: Compactor) -> None:
        self.current: CompactedLedger | None = None
        """The compacted ledger in use; None before the first compaction."""
        self.status = CompactionStatus.NOT_RUN
        """State of the last compaction."""
        self.last_error = ""
        """Why the last compaction failed; "" after a success."""
        self.counts = NO_COUNTS
        """Counts for statistics and metrics. To be read only."""
        self._topic = topic
        self._ledger = topic.ledger
        self._compactor = compactor
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Finds the compacted ledger in use, and removes those that a crash left.

        Raises MetadataError; BadVersion when another broker stores a horizon at this moment.
        """
        store, cursor = self._ledger.store, self._ledger.cursors.by_name.get(COMPACTION_CURSOR)
        used = None if cursor is None else cursor.acks.properties.get(LEDGER_PROPERTY)
        left = [one for one in store.beside if one != used]
        if left and cursor is not None:
            # First of all: a broker that has lost this topic may still store one of these as the compacted ledger in use.
            # After this write the store refuses it. Else the cursor would name a ledger that is removed here.
            cursor.store.keep_properties(cursor.store.cursor_properties)
            await cursor.store.flush()
        for ledger_id in left:
            await self._remove(ledger_id)
        if cursor is None:
            return
        self._ledger.trimming.held_at = cursor.mark_delete_position
        if used is None:
            return
        metadata = await self._ledger.environment.ledgers.recover(used)
        if metadata is None:
            log.error(
                "! %s: compacted ledger %d is missing; readers of the compacted view get the log",
                self._topic.name,
                used,
            )
            return
        self.current = CompactedLedger(
            self._ledger.environment.ledgers,
            used,
            horizon=cursor.mark_delete_position,
            entries=metadata.last_entry_id + 1,
            size_bytes=metadata.length,
        )

    # Reading

    def last_ledger(self) -> CompactedLedger | None:
        """Returns the compacted ledger when it has the last message of the compacted view.

        That is while no entry of the log is past the horizon; None otherwise.
        """
        current = self.current
        if current is None:
            return None
        later = self._ledger.ledgers.entries_between(current.horizon, self._ledger.last_confirmed)
        return None if later else current

    @property
    def backlog_bytes(self) -> int:
        """Estimated bytes of the log that are not compacted, by the mean size of an entry."""
        ledgers = self._ledger.ledgers
        if self.current is None:
            return ledgers.size_bytes
        entries = ledgers.entries_between(self.current.horizon, self._ledger.last_confirmed)
        return ledgers.size_bytes * entries // ledgers.entries if entries else 0

    # Running

    @property
    def running(self) -> bool:
        """True from `start` to the end of the compaction."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begins a compaction. CompactionRunning while one runs."""
        if self.running:
            raise CompactionRunning("Compaction already in progress")
        if self.counts is NO_COUNTS:
            self.counts = CompactionCounts()
        self.status = CompactionStatus.RUNNING
        self._task = asyncio.ensure_future(self._run())

    def start_if_due(self, threshold_bytes: int) -> bool:
        """Begins a compaction when so many bytes are not compacted, 0 = never; returns True if it did."""
        due = 0 < threshold_bytes < self.backlog_bytes and not self.running
        if due:
            self.start()
        return due

    async def wait(self) -> None:
        """Waits for the end of the compaction that runs, if any."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Stops a compaction. Its unfinished ledger is removed by the next open of the topic."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        environment, counts = self._ledger.environment, self.counts
        log.info("compacting %s", self._topic.name)
        started_ns = environment.now_ns()
        try:
            async with self._compactor.one_at_a_time:
                started_ns = environment.now_ns()
                await self._compact()
        except (BrokerError, OSError) as error:
            # OSError: the system has no process or memory for the worker.
            self.status, self.last_error = CompactionStatus.ERROR, str(error)
            counts.failed += 1
            counts.last_failed_ms = environment.wall_ms()
            log.warning("! compacting %s: %s", self._topic.name, error)
        except asyncio.CancelledError:
            self.status, self.last_error = CompactionStatus.ERROR, "the topic was closed"
            raise
        else:
            self.status, self.last_error = CompactionStatus.SUCCESS, ""
            counts.succeeded += 1
            counts.last_succeeded_ms = environment.wall_ms()
        finally:
            counts.last_duration_ms = (environment.now_ns() - started_ns) // 1_000_000

    async def _compact(self) -> None:
        # Imported for a compaction alone: an ordinary start must not pay for these rooms.
        from broker.compaction.passes import PassesSettings
        from broker.service.compaction.compaction_run import CompactionRun
        from broker.service.compaction.compaction_source import CompactionSource, segments_of

        ledger = self._ledger
        # Not waited for when this is cancelled: the call that cancels may hold the lock that this one waits for.
        cursor = await asyncio.shield(asyncio.ensure_future(self._topic.compaction_cursor()))
        ledger.trimming.held_at = (
            cursor.mark_delete_position if self.current is None else self.current.horizon
        )
        # Before the oldest open transaction: no reader sees what comes after it.
        horizon = ledger.context.last_readable
        segments = segments_of(ledger.ledgers, self.current, horizon)
        if not any(not one.compacted for one in segments):
            # Nothing was published since the last compaction, so another one would write the same again.
            self.counts.last_removed = 0
            return
        settings = self._topic.settings
        environment = ledger.environment
        source = CompactionSource(environment.ledgers, segments, settings.compaction_read_timeout_s)
        rules = PassesSettings(settings.compaction_retains_null_keys, settings.compaction_memory_bytes)
        worker = await self._compactor.start_worker(rules)
        run = CompactionRun(
            ledger,
            source,
            worker,
            topic=str(self._topic.name),
            partition=self._topic.name.partition,
            horizon=horizon,
            pause=_pause,
        )
        try:
            new = await run.run()
        finally:
            self._count(run.counts)
            await worker.close()
        self.counts.last_removed = run.counts.removed
        await self._use(new, cursor)
        log.info(
            "compacted %s up to %s: %d entries, %d messages removed",
            self._topic.name,
            horizon,
            new.entries,
            run.counts.removed,
        )

    def _count(self, run: RunCounts) -> None:
        self.counts.last_read_bytes = run.read_bytes
        self.counts.last_written_bytes = run.written_bytes
        self.counts.removed += run.removed

    async def _use(self, new: CompactedLedger, cursor: ManagedCursor) -> None:
        """Puts the new compacted ledger in the place of the former one."""
        former, self.current = self.current, new
        properties = {**cursor.acks.properties, LEDGER_PROPERTY: new.ledger_id}
        cursor.acknowledge_cumulative(new.horizon, properties=properties)
        await self._store(cursor)
        trimming, environment = self._ledger.trimming, self._ledger.environment
        trimming.held_at = new.horizon
        trimming.trim(environment.wall_ms())
        if former is not None:
            await uninterrupted(self._remove(former.ledger_id))

    async def _remove(self, ledger_id: int) -> None:
        async with self._ledger.store.lock:
            await self._ledger.store.remove_beside(ledger_id)

    async def _store(self, cursor: ManagedCursor) -> None:
        # From the acknowledgement on, any later write of the cursor stores the new horizon. So a failure is no reason to
        # go back: both ledgers stay until the write is known to have succeeded.
        while True:
            try:
                await uninterrupted(cursor.store.flush())
            except BadVersion:
                raise
            except MetadataError as error:
                log.warning("! the horizon of %s is not stored yet: %s", self._topic.name, error)
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return

    async def forget(self) -> None:
        """Removes the compacted ledger: the cursor `__compaction` was deleted. Raises MetadataError.

        A compaction that runs is stopped first, because it would acknowledge through the deleted cursor.
        """
        await self.close()
        self.status, self.last_error = CompactionStatus.NOT_RUN, ""
        self.current = None
        self._ledger.trimming.held_at = LATEST
        for ledger_id in list(self._ledger.store.beside):
            await self._remove(ledger_id)


async def _pause() -> None:
    await asyncio.sleep(0)
