"""The metadata store that `metadataStoreUrl` names, and where ledger ids come from with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.model.errors import MetadataError
from settings.settings import Settings

if TYPE_CHECKING:
    from broker.ledger_client.ledger_ids import LedgerIdSource
    from broker.metadata.metadata_store import MetadataStore
    from broker.metadata.metadata_url import ZookeeperUrl

FILE = "file:"
MEMORY = "memory:"


class OpenedMetadata(NamedTuple):
    store: MetadataStore
    ids: LedgerIdSource | None
    """None = the store counts them."""


async def open_metadata(settings: Settings) -> OpenedMetadata:
    """Inside the loop that will use it. MetadataError when the store cannot be opened or reached."""
    from broker.metadata.metadata_url import parse_zookeeper_url

    url = settings.str("metadataStoreUrl")
    if url.startswith(MEMORY):
        from broker.metadata.memory_metadata_store import MemoryMetadataStore

        return OpenedMetadata(MemoryMetadataStore(), None)
    zookeeper = parse_zookeeper_url(url)
    if zookeeper is not None:
        return await _in_zookeeper(settings, zookeeper)
    return OpenedMetadata(_embedded(Path(url.removeprefix(FILE))), None)


def _embedded(path: Path) -> MetadataStore:
    from broker.metadata.sqlite_metadata_store import SqliteMetadataStore

    path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteMetadataStore(path)


async def _in_zookeeper(settings: Settings, url: ZookeeperUrl) -> OpenedMetadata:
    try:
        from broker.ledger_client.zookeeper_ledger_ids import ZookeeperLedgerIds
        from broker.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kazoo":
            raise
        raise MetadataError(
            f"metadataStoreUrl={url}: the package kazoo is missing; pip install 'magnetar[zookeeper]'"
        ) from None
    store = await ZookeeperMetadataStore.open(
        url,
        session_timeout_s=settings.int("metadataStoreSessionTimeoutMillis") / 1000,
        timeout_s=settings.int("metadataStoreOperationTimeoutSeconds"),
    )
    return OpenedMetadata(store, ZookeeperLedgerIds(store.session))
