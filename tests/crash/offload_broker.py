"""`magnetar` that kills itself at a named step of an offload; the product knows nothing of this.

Nothing happens until the file exists that `ARMED` names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bookkeeper.ensembles.ledgers import Ledgers
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.offload.ledger_offloads import LedgerOffloads
from broker.offload.ledger_tier import LedgerTier
from foundation.objects.file_objects import FileObjects
from magnetar.__main__ import main
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT


class Step(NamedTuple):
    """A method, and by what its calls of this step are known."""

    owner: type
    method: str
    is_this: Callable[..., bool] = lambda *_: True


STEPS: Final[Mapping[str, Step]] = {
    "note": Step(LedgerOffloads, "_note", lambda _, offload: not offload.complete),
    "data": Step(FileObjects, "put", lambda key, *_: not key.endswith("-index")),
    "index": Step(FileObjects, "put", lambda key, *_: key.endswith("-index")),
    "compare": Step(LedgerTier, "_compare"),
    "complete": Step(LedgerOffloads, "_note", lambda _, offload: offload.complete),
    "marks": Step(LedgerListStore, "delete_marked"),
    "delete": Step(Ledgers, "delete"),
    "list": Step(LedgerListStore, "save"),
}
"""In their order."""
HALF: Final = "data.half"
"""After the first piece of the data object."""
POINTS: Final = (*(f"{step}.{place}" for step in STEPS for place in ("before", "after")), HALF)


def arm(point: str, armed: Path) -> None:
    """Makes this process die when it passes the point and `armed` exists."""
    name, _, place = point.partition(".")
    step = STEPS[name]
    original = getattr(step.owner, step.method)

    def dies(*values: Any) -> bool:
        return armed.exists() and step.is_this(*values)

    async def passing(self: Any, *values: Any) -> Any:
        here = dies(*values)
        if here and place == "before":
            _die()
        if here and place == "half":
            key, chunks, attributes = values
            values = (key, _first_alone(chunks), attributes)
        result = await original(self, *values)
        if here:
            _die()
        return result

    setattr(step.owner, step.method, passing)


async def _first_alone(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield await anext(chunks)
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]))
    sys.exit(main())
