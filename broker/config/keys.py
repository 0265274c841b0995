"""BROKER_KEYS: the table of the broker's keys, in the order of its conf file.

Each key stands once, as a row in a file `…_keys.py`. Rooms read keys in their
`settings.py`. Rules about several keys stand in `rules.py`, names of keys without a row in `unused_keys.tsv`.
"""

from __future__ import annotations

from pathlib import Path

from broker.config.authorization_keys import AUTHORIZATION
from broker.config.expiry_keys import EXPIRY
from broker.config.security_keys import AUTHENTICATION
from broker.config.server_keys import BALANCE, ENTRY_METADATA, FLOW, MAGNETAR, METRICS, SERVER, WEBSOCKET
from broker.config.storage_keys import BOOKIES, CURSORS, ENTRY_CACHE, LEDGERS, OFFLOAD, RECORD
from broker.config.tls_keys import BOOKIE_TLS, PEERS, TLS
from broker.config.topic_keys import (
    COMPACTION,
    DEDUPLICATION,
    DELAYS,
    DISPATCH,
    RATES,
    SCHEMAS,
    SUBSCRIPTIONS,
    TOPICS,
)
from broker.config.transaction_keys import TRANSACTIONS
from foundation.settings.keys import KeyTable
from foundation.settings.unused import UnusedKeys

BROKER_KEYS = KeyTable(
    "broker",
    (
        MAGNETAR,
        SERVER,
        AUTHENTICATION,
        AUTHORIZATION,
        TLS,
        PEERS,
        FLOW,
        WEBSOCKET,
        ENTRY_METADATA,
        TOPICS,
        SCHEMAS,
        DEDUPLICATION,
        DELAYS,
        COMPACTION,
        SUBSCRIPTIONS,
        EXPIRY,
        DISPATCH,
        TRANSACTIONS,
        RATES,
        LEDGERS,
        OFFLOAD,
        CURSORS,
        ENTRY_CACHE,
        RECORD,
        BOOKIES,
        BOOKIE_TLS,
        BALANCE,
        METRICS,
    ),
    unused=UnusedKeys(Path(__file__).with_name("unused_keys.tsv")),
    prefixes=("bookkeeper_", "brokerClient_", "lookup."),
    removed={
        "managedLedgerCacheEvictionFrequency": "set managedLedgerCacheEvictionIntervalMs, in milliseconds",
    },
)
