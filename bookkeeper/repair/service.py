"""AutoRecovery: auditor and replication worker of one process, looking around every second.

They poll the metadata store and set no watches: a poll of a cluster in which nothing is lost costs a few reads, and a
session that was lost needs no watch to be made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bookkeeper.repair.auditor import Auditor
from bookkeeper.repair.marks import Election, Marks
from bookkeeper.repair.stats import RecoveryStats
from bookkeeper.repair.worker import ReplicationWorker
from foundation.model.errors import BrokerError
from protocol.underreplication import DELAY

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two checks of the auditor and of the worker."""


class AutoRecovery:
    """Both parts, from `start` to `close`."""

    def __init__(
        self,
        auditor: Auditor,
        worker: ReplicationWorker,
        marks: Marks,
        election: Election,
        stats: RecoveryStats,
    ) -> None:
        """`stats` is that of auditor and worker."""
        self._auditor = auditor
        self._worker = worker
        self._marks = marks
        self._election = election
        self.stats = stats
        """Counters of this process."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, delay_s: int) -> None:
        """Prepares the cluster's nodes and begins both parts.

        `delay_s` becomes the cluster's lostBookieRecoveryDelay if none is stored. Raises MetadataError.
        """
        await self._marks.prepare(delay_s)
        await self._tell_delay(delay_s)
        self._tasks = [
            asyncio.create_task(self._repeat(self._audit, "auditor"), name="auditor"),
            asyncio.create_task(self._repeat(self._work, "replication worker"), name="replication worker"),
        ]

    async def close(self) -> None:
        """Ends both parts; a copy that is under way is given up, and its ledger stays marked."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(BrokerError):  # The vote ends with the session at the latest.
            await self._election.resign()

    async def _tell_delay(self, set_s: int) -> None:
        """Warns when the cluster's delay differs from the setting, which has an effect only at a cluster's first start."""
        stored_s = await self._marks.delay_s(set_s)
        if stored_s != set_s:
            log.warning(
                "lostBookieRecoveryDelay=%d has no effect: the cluster waits %d s, as %s in its metadata store says;"
                " `magnetar bookie lostbookierecoverydelay %d` changes that",
                set_s,
                stored_s,
                DELAY,
                set_s,
            )

    async def _audit(self) -> None:
        stats = self.stats.auditor
        was_elected, stats.elected = stats.elected, await self._election.is_elected()
        if stats.elected:
            if not was_elected:
                log.info("this process is the cluster's auditor")
            await self._auditor.look()
            stats.marked_now = len([None async for _ in self._marks.ledgers()])
        else:
            stats.elections += 1
            self._auditor.forget()

    async def _work(self) -> None:
        while await self._worker.work():
            pass

    async def _repeat(self, look: Callable[[], Awaitable[None]], name: str) -> None:
        failed = False
        while True:
            try:
                await look()
                failed = False
            except BrokerError as error:
                # One line per trouble: a metadata store that is away for an hour would fill the log.
                if not failed:
                    log.warning("the %s waits: %s", name, error)
                failed = True
            except Exception:  # A defect in one check must not end re-replication for good.
                log.exception("the %s failed", name)
            await asyncio.sleep(LOOK_S)
