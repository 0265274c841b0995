"""`magnetar` that kills itself at a named step of expiry and trimming; the product knows nothing of this."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from bookkeeper.ensembles.ledgers import Ledgers
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.ledger_list_store import LedgerListStore
from magnetar.__main__ import main
from tests.crash.compaction_broker import ARMED, arm
from tests.crash.counting_broker import count_runs
from tests.crash.crash_points import POINT

CURSOR: Final = "expiring"
"""The subscription whose messages expire."""
STEPS: Final[dict[str, tuple[type, str]]] = {
    "store": (CursorInfoWriter, "_write"),
    "trim": (LedgerListStore, "delete_marked"),
    "list": (LedgerListStore, "save"),
    "delete": (Ledgers, "delete"),
}
"""In their order: the cursor's acknowledgements, then marks in the list, then the ledgers, then the list without them."""
POINTS: Final = tuple(f"{step}.{place}" for step in STEPS for place in ("before", "after"))
SHADOW: Final = "shadow."
"""Before the name of a point: the subscription is on a shadow of the topic, and trims the ledgers of its source."""


if __name__ == "__main__":
    count_runs()
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]), STEPS, CURSOR)
    sys.exit(main())
