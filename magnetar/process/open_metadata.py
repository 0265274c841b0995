"""Opens the metadata store that `metadataStoreUrl` names, and finds where ledger ids come from with it.

memory:…                     a dictionary, gone with the process
zk:host:port/chroot          ZooKeeper, which also numbers ledgers for every BookKeeper client
file:PATH or PATH            one SQLite file; the broker counts ledger ids in it
unix:PATH                    the SQLite file of another process, which listens at this Unix socket
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.config.rules import metadata_timeout_s
from foundation.model.errors import MetadataError
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings

if TYPE_CHECKING:
    from bookkeeper.ensembles.ledger_ids import LedgerIdSource
    from bookkeeper.metadata.metadata_store import MetadataStore
    from bookkeeper.metadata.start_count import StartName
    from foundation.zookeeper.tls import ZookeeperTls
    from foundation.zookeeper.url import ZookeeperUrl

_FILE = "file:"
UNIX = "unix:"
"""Begins the URL of a store that another process serves."""
_MEMORY = "memory:"


class OpenedMetadata(NamedTuple):
    """An open store and its source of ledger ids."""

    store: MetadataStore
    """The caller closes it."""
    ids: LedgerIdSource | None = None
    """None = the broker counts ids in the store itself."""
    start_name: StartName | None = None
    """None = the broker counts its starts in the store itself."""


async def open_metadata(settings: Settings) -> OpenedMetadata:
    """Opens the store, inside the loop that uses it. Raises MetadataError when it cannot be opened or reached."""
    # Each store is imported when it is the one: SQLite's module and kazoo cost start time and memory.
    from foundation.zookeeper.url import parse_store_url

    url = settings.str("metadataStoreUrl")
    if url.startswith(_MEMORY):
        from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore

        return OpenedMetadata(MemoryMetadataStore())
    zookeeper = parse_store_url(url)
    if zookeeper is not None:
        return await _in_zookeeper(settings, zookeeper)
    if url.startswith(UNIX):
        from bookkeeper.metadata.socket_metadata_store import SocketMetadataStore

        store = await SocketMetadataStore.open(
            Path(url.removeprefix(UNIX)),
            session_timeout_s=settings.int("metadataStoreSessionTimeoutMillis") / 1000,
            timeout_s=metadata_timeout_s(settings),
        )
        return OpenedMetadata(store)
    return OpenedMetadata(_in_file(Path(url.removeprefix(_FILE))))


def _in_file(path: Path) -> MetadataStore:
    from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore

    path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteMetadataStore(path)


async def _in_zookeeper(settings: Settings, url: ZookeeperUrl) -> OpenedMetadata:
    from foundation.zookeeper.errors import ZookeeperError, require_kazoo

    try:
        require_kazoo(f"metadataStoreUrl={url}")
    except ZookeeperError as error:
        raise MetadataError(str(error)) from error
    from bookkeeper.ensembles.ledger_id_stock import LedgerIdStock
    from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
    from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
    from bookkeeper.metadata.zookeeper_starts import start_name

    store = await ZookeeperMetadataStore.open(
        url,
        session_timeout_s=settings.int("metadataStoreSessionTimeoutMillis") / 1000,
        timeout_s=metadata_timeout_s(settings),
        tls=_tls(settings),
    )
    ids = LedgerIdStock(ZookeeperLedgerIds(store.requests))
    return OpenedMetadata(store, ids, partial(start_name, store.requests))


def _tls(settings: Settings) -> ZookeeperTls | None:
    """Reads the file of `metadataStoreConfigPath`. Raises SettingsError for names and files that cannot be used."""
    path = settings.str("metadataStoreConfigPath")
    if not path:
        return None
    from foundation.settings.load import read_text
    from foundation.settings.properties import parse_properties
    from foundation.tls.contexts import ClientFiles, client_context
    from foundation.tls.errors import TlsError
    from foundation.zookeeper.tls import parse_tls

    values = {entry.key: entry.value for entry in parse_properties(read_text(Path(path)), path)}
    try:
        tls = parse_tls(values)
        if tls is not None:
            # kazoo reads the files with each connection, and takes a file that it cannot read for a server that is away.
            client_context(
                ClientFiles(
                    trusted=tls.trusted,
                    certificate=tls.certificate,
                    key=tls.certificate,
                    password=tls.password,
                )
            )
    except (ValueError, TlsError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return tls
