"""Re-replication inside the process of a bookie, where `autoRecoveryDaemonEnabled` asks for it.

It runs on the bookie's event loop, so its copies take from the loop's time; `replicationRateByBytes` limits them. It has a
session with ZooKeeper of its own: an expired one must not take the bookie's node with it.
"""

from __future__ import annotations

import asyncio
import logging

from bookie_stub.__main__ import Companion
from bookie_stub.config.settings import BookieSettings
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings

log = logging.getLogger("magnetar")

RETRY_S = 5.0
"""Seconds between two attempts to join the cluster."""


def make_companion(loaded: Settings) -> Companion | None:
    """Returns re-replication for a bookie that registers, None where the settings ask for none."""
    settings = BookieSettings.of(loaded)
    if settings.metadata is None or not loaded.bool("autoRecoveryDaemonEnabled"):
        return None
    return _RecoveryBeside(loaded, settings)


class _RecoveryBeside:
    """`Companion` of a bookie."""

    def __init__(self, loaded: Settings, settings: BookieSettings) -> None:
        from bookkeeper.repair.stats import RecoveryStats
        from magnetar.process.recovery_settings import AutoRecoverySettings

        self._settings = settings
        self._recovery = AutoRecoverySettings.of(loaded)
        self._stats = RecoveryStats()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Joins the cluster in the background, again and again until it succeeds."""
        self._task = asyncio.create_task(self._run(), name="re-replication")

    async def close(self) -> None:
        """Ends auditor and worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def metrics(self) -> bytes:
        """Returns the counters under the names that BookKeeper gives them inside a bookie."""
        from bookkeeper.repair.exposition import IN_A_BOOKIE, render

        return render(self._stats, IN_A_BOOKIE)

    async def _run(self) -> None:
        # Imported here: the client of bookies is loaded by a bookie only for this.
        from foundation.model.errors import MetadataError
        from magnetar.process.rereplication import running

        while True:
            try:
                async with running(self._settings, self._recovery, self._stats):
                    await asyncio.Event().wait()
            except SettingsError as error:
                log.warning("re-replication does not run in this process: %s", error)
                return
            except MetadataError as error:
                log.warning("re-replication waits for the metadata store: %s", error)
            await asyncio.sleep(RETRY_S)
