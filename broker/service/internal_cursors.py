"""The cursors that the broker keeps for itself beside the subscriptions of a topic."""

from __future__ import annotations

from typing import Final

COMPACTION_CURSOR: Final = "__compaction"
"""Pulsar's name for the cursor that holds the horizon of a topic's compaction."""
DEDUPLICATION_CURSOR: Final = "pulsar.dedup"
"""Pulsar's name for the cursor that holds the highest sequence ids of producers."""
TRANSACTIONS_CURSOR: Final = "magnetar.transactions"
"""Our name for the cursor that holds the snapshots of a topic's transactions."""
UNLISTED_CURSORS: Final = frozenset((DEDUPLICATION_CURSOR, TRANSACTIONS_CURSOR))
"""Cursors that no list of subscriptions shows."""
INTERNAL_CURSORS: Final = UNLISTED_CURSORS | {COMPACTION_CURSOR}
"""Cursors of the broker's own; no client may subscribe under their names."""
