"""`magnetar` that kills itself at a named step of an offload or of the copies' deletion; the product knows nothing of it.

Nothing happens until the file exists that `ARMED` names.
"""

from __future__ import annotations

import asyncio
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
from tests.crash.counting_broker import count_runs
from tests.crash.crash_points import POINT


class Step(NamedTuple):
    """A method, and by what its calls of this step are known."""

    owner: type | None
    """None: the class of the storage."""
    method: str
    is_this: Callable[..., bool] = lambda *_: True


STEPS: Final[Mapping[str, Step]] = {
    "note": Step(LedgerOffloads, "_note", lambda _, offload: not offload.complete),
    "data": Step(None, "put", lambda key, *_: not key.endswith("-index")),
    "index": Step(None, "put", lambda key, *_: key.endswith("-index")),
    "compare": Step(LedgerTier, "_compare"),
    "complete": Step(LedgerOffloads, "_note", lambda _, offload: offload.complete),
    "marks": Step(LedgerListStore, "delete_marked"),
    "delete": Step(Ledgers, "delete"),
    "list": Step(LedgerListStore, "save"),
}
"""Of an offload, in their order."""
REMOVALS: Final[Mapping[str, Step]] = {
    "copy_marks": Step(LedgerListStore, "delete_marked"),
    "copy_list": Step(LedgerListStore, "save"),
    "copy_data": Step(None, "delete", lambda key: not key.endswith("-index")),
    "copy_index": Step(None, "delete", lambda key: key.endswith("-index")),
}
"""Of the deletion of copies whose ledgers are trimmed, in their order."""
HALF: Final = "data.half"
"""After the first piece of the data object."""
POINTS: Final = (
    *(f"{step}.{place}" for step in (*STEPS, *REMOVALS) for place in ("before", "after")),
    HALF,
)
S3: Final = "s3."
"""Begins a point of an offload to S3."""


def arm(point: str, armed: Path) -> None:
    """Makes this process die when it passes the point and `armed` exists."""
    on_s3 = point.startswith(S3)
    name, _, place = point.removeprefix(S3).partition(".")
    step = STEPS.get(name) or REMOVALS[name]
    owner = step.owner or _storage(on_s3=on_s3, small=place == "half")
    original = getattr(owner, step.method)

    def dies(*values: Any) -> bool:
        return armed.exists() and step.is_this(*values)

    async def passing(self: Any, *values: Any) -> Any:
        here = dies(*values)
        if here and place == "before":
            _die()
        if here and place == "half":
            key, chunks, attributes = values
            values = (key, _uploaded(self, key, chunks) if on_s3 else _first_alone(chunks), attributes)
        result = await original(self, *values)
        if here:
            _die()
        return result

    setattr(owner, step.method, passing)


async def _first_alone(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield await anext(chunks)
    _die()


async def _uploaded(objects: Any, key: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields pieces until the service has begun the upload, and dies before the last one."""
    ahead = await anext(chunks)
    async for chunk in chunks:
        yield ahead
        ahead = chunk
    # The library sends parts in threads of its own.
    while not await objects.uploads.find(key):  # noqa: ASYNC110 - another process is asked
        await asyncio.sleep(0.01)
    _die()


def _storage(*, on_s3: bool, small: bool) -> type:
    """Returns the class of the storage; `small`: an upload to S3 has several parts."""
    if not on_s3:
        return FileObjects
    from foundation.objects import s3_objects  # Late: its library is an extra.

    if small:
        vars(s3_objects)["PART_BYTES"] = 4096
    return s3_objects.S3Objects


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    count_runs()
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]))
    sys.exit(main())
