"""Rows of the broker's table: transactions.

Names and defaults are Pulsar's: its configuration class of release 4.2. The words are ours. `settings.keys.Key` explains
the columns.
"""

from __future__ import annotations

from settings.keys import Key, Section

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

TRANSACTIONS = Section("Transactions", (
    Key("transactionCoordinatorEnabled", "bool", False,
        doc="Run transaction coordinators; while this is off, every request for a transaction is refused."),
    Key("maxActiveTransactionsPerCoordinator", "int", 0, "transactions", low=0,
        doc="Transactions that one coordinator may have open; 0 means 20,000."),
    Key("transactionBufferSnapshotMaxTransactionCount", "int", 1000, "entries", low=1,
        doc="Entries of a topic with transactions after which its aborted transactions are kept anew, so that opening "
            "the topic reads no more entries than these."),
    Key("transactionBufferSnapshotMinTimeInMillis", "int", 5000, "ms", low=1,
        doc="Time after which they are kept anew with fewer entries."),
))
