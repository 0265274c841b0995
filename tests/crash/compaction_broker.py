"""`magnetar` that kills itself at a named step of a topic compaction; the product knows nothing of this.

A name is what is done, and before or behind it. Nothing happens until the file exists that `ARMED` names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from broker.compaction.worker_process import WorkerProcess
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.service.compaction.ledger_output import LedgerOutput
from broker.service.compaction.topic_compaction import TopicCompaction
from broker.service.internal_cursors import COMPACTION_CURSOR
from magnetar.__main__ import main
from tests.crash.counting_broker import count_runs
from tests.crash.crash_points import POINT

ARMED: Final = "CRASH_ARMED"
"""Environment: path of a file; the process dies at the point only while it exists."""

Step = Callable[..., Awaitable[Any]]

STEPS: Final[dict[str, tuple[type, str]]] = {
    "pass-one": (WorkerProcess, "end_round"),
    "begin": (LedgerListStore, "begin_beside"),
    "write": (LedgerOutput, "room"),
    "close": (LedgerOutput, "close"),
    "use": (TopicCompaction, "_use"),
    "store": (CursorInfoWriter, "flush"),
    "remove": (LedgerListStore, "remove_beside"),
}
POINTS: Final = tuple(f"{step}.{place}" for step in STEPS for place in ("before", "after"))
"""Each is passed once by every compaction behind a topic's first."""


def arm(
    point: str, armed: Path, steps: Mapping[str, tuple[type, str]] = STEPS, cursor: str = COMPACTION_CURSOR
) -> None:
    """Makes this process die when it passes the point of `steps` and `armed` exists.

    The step `store` is the one of the cursor alone.
    """
    step, _, place = point.partition(".")
    owner, name = steps[step]
    original: Step = getattr(owner, name)

    def dies(self: Any) -> bool:
        # Other cursors are flushed too.
        return armed.exists() and (step != "store" or cursor in self._record.key)

    async def passing(self: Any, *values: Any, **named: Any) -> Any:
        here = dies(self)
        if here and place == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(self, *values, **named)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, passing)


if __name__ == "__main__":
    count_runs()
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]))
    sys.exit(main())
