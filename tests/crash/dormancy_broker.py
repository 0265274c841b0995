"""`magnetar` that kills itself at a named step of falling asleep or waking; the product knows nothing of this."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.topic_opener import TopicOpener
from magnetar.__main__ import main
from tests.crash.compaction_broker import ARMED, arm
from tests.crash.counting_broker import count_runs
from tests.crash.crash_points import POINT

CURSOR: Final = "sleeping"
"""The subscription of the topic."""
SLEEP_STEPS: Final[dict[str, tuple[type, str]]] = {
    "sleep": (DormantTopics, "close"),
    "end": (LedgerListStore, "save"),
    "leave": (CursorInfoWriter, "close"),
    "record": (ManagedLedger, "stored_nodes"),
}
"""In their order: the whole, the end of the last ledger in the list, the last acknowledgements, the read for the record."""
WAKE_STEPS: Final[dict[str, tuple[type, str]]] = {
    "wake": (TopicOpener, "open"),
    "begin": (LedgerListStore, "start_current"),
    "store": (CursorInfoWriter, "_write"),
}
"""In their order: the opening, the ledger of the first message, the first acknowledgement."""


def _points(steps: dict[str, tuple[type, str]]) -> tuple[str, ...]:
    return tuple(f"{step}.{place}" for step in steps for place in ("before", "after"))


SLEEP_POINTS: Final = _points(SLEEP_STEPS)
"""Points that a topic passes when it falls asleep."""
POINTS: Final = SLEEP_POINTS + _points(WAKE_STEPS)


if __name__ == "__main__":
    count_runs()
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]), SLEEP_STEPS | WAKE_STEPS, CURSOR)
    sys.exit(main())
