"""CompactionRun: one compaction of one topic, from the first read to a closed compacted ledger.

    1  pass one      all entries go to the worker, which answers with the fate of each
    2  begin         the list of the log names the new ledger, and the ledger begins, in one write
    3  pass two      entries that are kept go into it; batches that lose messages come back from the worker rewritten
    4  end           the ledger is closed

An error or a crash in between leaves the former compacted ledger in use. The new one is named beside the log's list, so this
run, or the next open of the log, removes it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from bookkeeper.ensembles.own_ledger import OwnLedger
from broker.compaction.latest_messages import KEEP, REWRITE
from broker.compaction.passes import PassOneResult
from broker.compaction.worker_process import Worker
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.compaction.compaction_source import CompactionSource, NumberedRun
from broker.service.compaction.ledger_output import LedgerOutput
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.entry import Buffer, Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageIdData, MessageMetadata

log = logging.getLogger("magnetar")

NO_MESSAGE: Final = message_body(
    MessageMetadata(producer_name="", sequence_id=0, publish_time=0, marker_type=1), b""
)
"""Stands for an entry that no reader gets; pass one drops markers."""
ADDS_AT_ONCE = 100
"""Entries that are added before the event loop serves others."""


@dataclass(slots=True)
class RunCounts:
    """Counts of one run, which grow while it works."""

    read_bytes: int = 0
    """Bytes of entries read, in both passes."""
    written_bytes: int = 0
    """Bytes of entries added to the compacted ledger."""
    removed: int = 0
    """Messages that are not kept."""


class CompactionRun:
    """Compacts everything up to a horizon."""

    def __init__(
        self,
        ledger: ManagedLedger,
        source: CompactionSource,
        worker: Worker,
        *,
        topic: str,
        partition: int,
        horizon: Position,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """`pause` lets the event loop serve others; `topic` and `partition` name the owner of the ledger."""
        self.counts = RunCounts()
        """Progress so far."""
        self._ledger = ledger
        self._source = source
        self._worker = worker
        self._topic = topic
        self._partition = partition
        self._horizon = horizon
        self._pause = pause

    async def run(self) -> CompactedLedger:
        """Returns the new compacted ledger. Raises BrokerError; nothing has changed then."""
        result = await self._pass_one()
        own = await uninterrupted(self._begin())
        try:
            output = await self._pass_two(own, result)
            await output.close()
        except BrokerError:
            await uninterrupted(self._remove(own.ledger_id))
            raise
        self.counts.removed = result.messages - result.kept
        return CompactedLedger(
            self._ledger.environment.ledgers,
            own.ledger_id,
            horizon=self._horizon,
            entries=output.entries,
            size_bytes=output.size_bytes,
        )

    async def _pass_one(self) -> PassOneResult:
        while True:
            async with aclosing(self._source.runs()) as runs:
                async for run in runs:
                    self._count_read(run)
                    await self._worker.add(list(enumerate(self._bodies(run.entries), run.number)))
            result = await self._worker.end_round()
            if result is not None:
                return result

    def _bodies(self, entries: list[Entry]) -> list[Buffer]:
        """Returns the bodies, with a marker in the place of entries that no reader gets: their keys must not count."""
        view = self._ledger.context.view
        if view is None:
            return [entry.body for entry in entries]
        # No cursor has the empty name, so acknowledgements hide nothing.
        hidden = {entry.position for entry in view.divide("", entries).left_out}
        return [NO_MESSAGE if entry.position in hidden else entry.body for entry in entries]

    async def _begin(self) -> OwnLedger:
        environment = self._ledger.environment
        ledger_id = await environment.ids.next()
        to = MessageIdData(ledgerId=self._horizon.ledger_id, entryId=self._horizon.entry_id)
        custom = {
            "application": b"pulsar",
            "component": b"compacted-ledger",
            "pulsar/compactedTopic": self._topic.encode(),
            "pulsar/compactedTo": to.SerializeToString(),
        }
        async with self._ledger.store.lock:
            return await self._ledger.store.begin_beside(ledger_id, custom)

    async def _pass_two(self, own: OwnLedger, result: PassOneResult) -> LedgerOutput:
        environment = self._ledger.environment
        output = LedgerOutput(own, environment.ledgers, environment.turn, environment.now_ns, self._partition)
        async with aclosing(self._source.runs(result.fates)) as runs:
            async for run in runs:
                self._count_read(run)
                fates = result.fates[run.number : run.number + len(run.entries)]
                rewritten = await self._rewrite(run, fates)
                await self._write(output, run, fates, rewritten)
        return output

    async def _rewrite(self, run: NumberedRun, fates: bytes) -> dict[int, bytes]:
        """Returns the new bodies of batches that lose messages, by their number."""
        batches: Sequence[tuple[int, Buffer]] = [
            (number, entry.body)
            for number, (entry, fate) in enumerate(zip(run.entries, fates, strict=True), run.number)
            if fate == REWRITE
        ]
        if not batches:
            return {}
        bodies = await self._worker.rewrite(batches)
        return {number: body for (number, _), body in zip(batches, bodies, strict=True)}

    async def _write(
        self, output: LedgerOutput, run: NumberedRun, fates: bytes, rewritten: dict[int, bytes]
    ) -> None:
        added = 0
        for number, (entry, fate) in enumerate(zip(run.entries, fates, strict=True), run.number):
            if fate == KEEP:
                body = entry.body
            elif fate == REWRITE:
                body = rewritten[number]
            else:
                continue
            output.add(entry, body)
            self.counts.written_bytes += len(body)
            added += 1
            if added % ADDS_AT_ONCE == 0:
                await output.room()
                await self._pause()
        await output.room()

    def _count_read(self, run: NumberedRun) -> None:
        self.counts.read_bytes += sum([entry.size for entry in run.entries])

    async def _remove(self, ledger_id: int) -> None:
        try:
            async with self._ledger.store.lock:
                await self._ledger.store.remove_beside(ledger_id)
        except BrokerError as error:
            # Still named beside the list, so the next open of the log removes it.
            log.warning("! %s: unfinished compacted ledger %d stays: %s", self._topic, ledger_id, error)
