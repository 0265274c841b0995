"""`magnetar` that kills itself at a named step of a deletion; the product knows nothing of this.

A name is the kind of the deletion, its step, and before or behind it. Nothing happens before the file that `ARMED` names
exists.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from broker.service.lifecycle.deletion.intents import DeletedKind, Intent, Intents
from broker.service.lifecycle.deletion.steps import DeletionSteps, Step
from magnetar.__main__ import main
from tests.crash.compaction_broker import ARMED
from tests.crash.counting_broker import count_runs
from tests.crash.crash_points import POINT

STEPS: Final = {
    "topic": ("schema", "policies", "log", "finish"),
    "partitioned": ("partitions", "schema", "policies", "metadata", "finish"),
    "namespace": ("topics", "partitioned", "schemas", "namespace", "finish"),
    "tenant": ("namespaces", "tenant", "finish"),
}
POINTS: Final = tuple(
    f"{kind}.{step}.{place}"
    for kind, steps in STEPS.items()
    for step in steps
    for place in ("before", "after")
)


def arm(point: str, armed: Path) -> None:
    """Makes this process die when it passes the point and `armed` exists."""
    kind, step, place = point.split(".")

    def dies(name: str, intent: Intent) -> bool:
        return armed.exists() and name == step and intent.kind == kind

    def killing(name: str, call: Callable[..., Awaitable[None]]) -> Callable[[Intent], Awaitable[None]]:
        async def passing(intent: Intent) -> None:
            here = dies(name, intent)
            if here and place == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            await call(intent)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

        return passing

    steps_of, finished = DeletionSteps.of, Intents.finished

    def of(self: DeletionSteps, wanted: DeletedKind) -> Sequence[Step]:
        return [(name, killing(name, call)) for name, call in steps_of(self, wanted)]

    async def finish(self: Intents, intent: Intent) -> None:
        await killing("finish", lambda one: finished(self, one))(intent)

    patched: Any = DeletionSteps
    patched.of = of
    patched = Intents
    patched.finished = finish


if __name__ == "__main__":
    count_runs()
    if POINT in os.environ:
        arm(os.environ[POINT], Path(os.environ[ARMED]))
    sys.exit(main())
