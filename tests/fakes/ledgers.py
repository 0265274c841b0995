"""Ledgers on one bookie, for tests of the layers above."""

from __future__ import annotations

import asyncio

from broker.ledger_client.bookies import OneBookie
from broker.ledger_client.ledger_client import LedgerClient
from broker.ledger_client.ledgers import Ledgers
from broker.ledger_client.settings import LedgerSettings
from broker.metadata.metadata_store import MetadataStore

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
