"""Starts a compaction worker. The room of compactions, with all codecs, is imported only then: few brokers compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.compaction.passes import PassesSettings
    from broker.compaction.worker_process import Worker


async def start_worker(settings: PassesSettings) -> Worker:
    """Starts a process for one compaction. OSError when the system refuses one."""
    from broker.compaction.worker_process import WorkerProcess

    return await WorkerProcess.start(settings)
