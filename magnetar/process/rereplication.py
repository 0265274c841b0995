"""Joins re-replication to a cluster: ZooKeeper, the registered bookies, auditor and worker.

`magnetar bookie autorecovery` runs it as a process, a bookie inside its own, and the commands around it use
`ClusterConnections` alone. Its client of bookies is the broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.repair.auditor import Auditor
from bookkeeper.repair.copying import Copying
from bookkeeper.repair.marks import Marks
from bookkeeper.repair.pace import CopyPace
from bookkeeper.repair.service import AutoRecovery
from bookkeeper.repair.stats import RecoveryStats
from bookkeeper.repair.worker import ReplicationWorker
from broker.compose.background_tasks import BackgroundTasks
from broker.compose.ledger_settings import QuarantineSettings
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.settings.errors import SettingsError
from foundation.tls.certificates import Certificates
from foundation.tls.contexts import ClientFiles, client_context, password_in
from foundation.tls.errors import TlsError
from foundation.zookeeper.url import ZookeeperUrl
from magnetar.process.recovery_settings import AutoRecoverySettings
from magnetar.process.remote_bookies import RegisteredBookies

if TYPE_CHECKING:
    from bookie_stub.config.settings import BookieSettings
    from bookie_stub.config.tls import TlsFiles
    from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

log = logging.getLogger("magnetar")

_LEDGERS = "/ledgers"
_REQUEST_TIMEOUT_S = 30.0
"""Silence after which a bookie counts as gone, as the broker's bookkeeperClientTimeoutInSeconds."""
_TLS_CHECK_S = 300.0


@dataclass(frozen=True, slots=True)
class ClusterConnections:
    """Open connections to a cluster."""

    store: ZookeeperMetadataStore
    """The metadata."""
    bookies: RegisteredBookies
    """Connections to bookies, by id."""
    marks: Marks
    """The marks of ledgers that lack copies."""

    async def registered(self) -> frozenset[str]:
        """Returns the ids of all bookies that serve now, read-only ones included. Raises MetadataError."""
        folder = f"{_LEDGERS}/available"
        names = await asyncio.gather(self.store.children(folder), self.store.children(f"{folder}/readonly"))
        return frozenset(name for some in names for name in some) - {"readonly"}

    async def cookies(self) -> frozenset[str]:
        """Returns the ids of all bookies that ever registered and were not given up. Raises MetadataError."""
        return frozenset(await self.store.children(f"{_LEDGERS}/cookies"))


@contextlib.asynccontextmanager
async def joined(settings: BookieSettings) -> AsyncIterator[ClusterConnections]:
    """Connects to the cluster that a bookie's settings name.

    Raises SettingsError for settings that name none, MetadataError when ZooKeeper does not answer.
    """
    from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

    connect = partial(
        BookKeeperLedgerClient,
        turn=Turn(asyncio.get_running_loop().call_soon, clock.monotonic_ns),
        frame_bytes_max=settings.frame_bytes_max,
        timeout_s=_REQUEST_TIMEOUT_S,
        tls=_certificates(settings.tls),
        receive_sizes=settings.receive_sizes,
    )
    async with contextlib.AsyncExitStack() as stack:
        store = await ZookeeperMetadataStore.open(
            _chroot(settings),
            session_timeout_s=settings.metadata_timeout_s,
            timeout_s=settings.metadata_timeout_s,
        )
        stack.push_async_callback(store.close)
        bookies = RegisteredBookies(connect, QuarantineSettings(), None)
        stack.push_async_callback(bookies.close)
        await bookies.follow(store)
        yield ClusterConnections(store, bookies, Marks(store))


@contextlib.asynccontextmanager
async def running(
    settings: BookieSettings, recovery: AutoRecoverySettings, stats: RecoveryStats
) -> AsyncIterator[None]:
    """Runs auditor and worker while the context is open. Raises as `joined`."""
    from bookkeeper.repair.zookeeper_locks import ZookeeperElection, ZookeeperLocks

    async with joined(settings) as cluster:
        tasks = BackgroundTasks()
        requests = cluster.store.requests
        locks = ZookeeperLocks(requests, settings.bookie_id)
        await locks.prepare()
        means = Copying(
            cluster.bookies,
            CopyPace(recovery.bytes_per_s),
            recovery.batch_entries,
            clock.monotonic_ns,
            stats.worker,
        )
        worker = ReplicationWorker(
            cluster.store,
            cluster.bookies,
            cluster.marks,
            locks,
            cluster.registered,
            recovery,
            means,
            call_soon=asyncio.get_running_loop().call_soon,
            spawn=lambda work: tasks.spawn(work, "ensemble change of a recovery"),
        )
        auditor = Auditor(
            cluster.store,
            cluster.bookies,
            cluster.marks,
            cluster.registered,
            recovery,
            stats.auditor,
            now_ns=clock.monotonic_ns,
            wall_ms=clock.wall_ms,
        )
        election = ZookeeperElection(requests, settings.bookie_id)
        service = AutoRecovery(auditor, worker, cluster.marks, election, stats)
        await service.start(recovery.lost_bookie_delay_s)
        log.info("re-replication runs for the cluster at %s", settings.metadata)
        try:
            yield
        finally:
            await service.close()
            await tasks.close()


def _chroot(settings: BookieSettings) -> ZookeeperUrl:
    """Returns the node above the ledgers' root, which all keys of a metadata store begin at."""
    url = settings.metadata
    if url is None:
        raise SettingsError("metadataServiceUri is unset: re-replication needs the cluster's metadata store")
    if not url.root.endswith(_LEDGERS):
        raise SettingsError(
            f"metadataServiceUri: re-replication needs a path that ends with /ledgers, not {url.root}"
        )
    return url._replace(root=url.root.removesuffix(_LEDGERS))


def _certificates(files: TlsFiles | None) -> Certificates | None:
    """Returns the TLS of connections to other bookies: this bookie's certificate shows who asks.

    None where this bookie has no TLS. Raises SettingsError for files that cannot be used.
    """
    if files is None:
        return None
    client = ClientFiles(
        trusted=files.trusted,
        certificate=files.certificate,
        key=files.key,
        password="" if files.password is None else password_in(Path(files.password)),
    )
    try:
        return Certificates(
            lambda: client_context(client),
            client.paths(),
            check_s=_TLS_CHECK_S,
            now_ns=clock.monotonic_ns,
            warn=log.warning,
        )
    except TlsError as error:
        raise SettingsError(f"TLS of connections to bookies: {error}") from None
