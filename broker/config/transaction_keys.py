"""Rows of the broker's table: transactions.

Names and defaults are Pulsar's: its configuration class of release 4.2. The words are ours. `foundation.settings.keys.Key`
explains the columns.
"""

from __future__ import annotations

from foundation.settings.keys import Key, Section

TIMEOUT_MAX_S = 2_147_483
"""Seconds in 2^31 ms, 24 days: a transaction that never ends holds back the readers of its topics, and their trimming."""

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

TRANSACTIONS = Section("Transactions", (
    Key("transactionCoordinatorEnabled", "bool", False,
        doc="Run transaction coordinators; while this is off, every request for a transaction is refused."),
    Key("transactionCoordinatorScalableTopicsEnabled", "bool", True, needs=("transactionCoordinatorEnabled", "true"),
        doc="Tell clients of Pulsar 5.0 where the coordinators are, without which they begin no transaction. Their "
            "transactions run in the same coordinators as all others."),
    Key("maxActiveTransactionsPerCoordinator", "int", 0, "transactions", low=0,
        doc="Transactions that one coordinator may have open; 0 means 20,000."),
    Key("maxActiveTransactionsPerRole", "int", 0, "transactions", low=0, ours=True,
        doc="Transactions that one role may have open at one coordinator, superusers excepted; 0 means a tenth of "
            "`maxActiveTransactionsPerCoordinator`, at least 1. It has no effect on clients without a role."),
    Key("maxActiveTransactionsPerConnection", "int", 10000, "transactions", low=0, ours=True,
        doc="Open transactions that one connection may have begun; 0 means no limit."),
    Key("transactionTimeoutMaxSeconds", "int", 86400, "s", low=1, high=TIMEOUT_MAX_S, ours=True,
        doc="Longest time-out of a transaction; a request with a longer one is refused. Transactions that an earlier "
            "start admitted with a longer one end by this time, too."),
    Key("transactionBufferSnapshotMaxTransactionCount", "int", 1000, "entries", low=1,
        doc="Entries of a topic with transactions after which its aborted transactions are kept anew, so that opening "
            "the topic reads no more entries than these."),
    Key("transactionBufferSnapshotMinTimeInMillis", "int", 5000, "ms", low=1,
        doc="Time after which they are kept anew with fewer entries."),
))
