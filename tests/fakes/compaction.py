"""A compaction worker in the test's own process."""

from __future__ import annotations

from collections.abc import Sequence

from broker.compaction.frames import Numbered
from broker.compaction.passes import Passes, PassesSettings, PassOneResult
from broker.compaction.worker_process import WorkerFailed


class InlineWorker:
    """Runs the passes at once; `broken` makes it fail like a worker that was killed."""

    def __init__(self, settings: PassesSettings) -> None:
        self.settings = settings
        self.rounds = 0
        self.broken = False
        self.closed = False
        self._passes = Passes(settings)

    def _check(self) -> None:
        if self.broken:
            raise WorkerFailed("the compaction worker has ended")

    async def add(self, entries: Sequence[Numbered]) -> None:
        self._check()
        self._passes.add([body for _, body in entries])

    async def end_round(self) -> PassOneResult | None:
        self._check()
        self.rounds += 1
        return self._passes.end_round()

    async def rewrite(self, entries: Sequence[Numbered]) -> list[bytes]:
        self._check()
        return self._passes.rewrite(entries)

    async def close(self) -> None:
        self.closed = True
