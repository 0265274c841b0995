"""`magnetar` that kills itself at a named step of an audit's quarantine; the product knows nothing of this.

A name is the action, the step, and the place: before or behind the step, or in its middle.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from magnetar.__main__ import main
from magnetar.audit import command, quarantine
from tests.crash.crash_points import POINT

STEPS: Final = {
    "quarantine": ("put", "delete"),
    "put-back": ("put", "delete"),
    "export": ("write",),
    "delete": ("request", "delete"),
}
"""By action: `put` and `delete` are writes of the metadata store, `write` is a file, `request` goes to the broker."""
POINTS: Final = (
    *(
        f"{action}.{step}.{place}"
        for action, steps in STEPS.items()
        for step in steps
        for place in ("before", "after")
    ),
    "export.write.half",
)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Makes this process die when it passes the point for the first time."""
    _, step, place = point.split(".")
    if step in ("put", "delete"):
        _arm_store(step, place)
    elif step == "request":
        _arm_request(place)
    elif place == "half":
        replace = Path.replace

        def dying(self: Path, target: Path) -> Path:
            if self.suffix == ".part":
                _die()
            return replace(self, target)

        Path.replace = dying  # type: ignore[assignment, method-assign]
    else:
        quarantine._write = _dying(quarantine._write, place)


def _dying(call: Callable[..., Any], place: str) -> Callable[..., Any]:
    def passing(*values: Any) -> Any:
        if place == "before":
            _die()
        call(*values)
        _die()

    return passing


def _arm_store(step: str, place: str) -> None:
    call: Callable[..., Awaitable[Any]] = getattr(SqliteMetadataStore, step)

    async def passing(self: SqliteMetadataStore, *values: Any) -> None:
        if place == "before":
            _die()
        await call(self, *values)
        _die()

    setattr(SqliteMetadataStore, step, passing)


def _arm_request(place: str) -> None:
    patched: Any = command
    ask = patched.ask

    def passing(address: Any, method: str, path: str) -> Any:
        if method == "DELETE" and place == "before":
            _die()
        answer = ask(address, method, path)
        if method == "DELETE":
            _die()
        return answer

    patched.ask = passing


if __name__ == "__main__":
    if POINT in os.environ:
        arm(os.environ[POINT])
    sys.exit(main())
