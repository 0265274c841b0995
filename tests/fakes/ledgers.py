"""Ledgers on one bookie, for tests of the layers above."""

from __future__ import annotations

import asyncio

from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.ensembles.bookies import OneBookie
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.ledger_settings import LedgerSettings

ADDRESS = "127.0.0.1:3181"


def on_one_bookie(metadata: MetadataStore, client: LedgerClient) -> Ledgers:
    """Ledgers whose entries are all on `client`."""
    loop = asyncio.get_running_loop()
    return Ledgers(
        metadata,
        OneBookie(ADDRESS, client),
        LedgerSettings(),
        call_soon=loop.call_soon,
        call_later=loop.call_later,
    )
