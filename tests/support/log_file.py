"""The log of a process that runs: its complete lines, and a wait for lines that come later than what they tell of.

A broker and a bookie write their logs from a helper thread (`magnetar/process/logs.py`). A line may come long after the
client has seen the event, so a test that looks once fails on a busy machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

WAIT_S: Final = 60.0
"""Seconds until a missing line fails the test; a line that comes ends the wait at once."""
_POLL_S: Final = 0.01


def lines_in(path: Path) -> list[str]:
    """Returns the complete lines; the last one may still be on its way."""
    return path.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0].splitlines()


def tail_of(path: Path, lines: int = 20) -> str:
    """Returns the last lines, for the text of an error."""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def wait_for_lines(path: Path, *texts: str, count: int = 1, timeout_s: float = WAIT_S) -> list[str]:
    """Returns all lines that have every one of `texts`, once there are at least `count`.

    AssertionError with the end of the log where they do not come within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while len(found := [line for line in lines_in(path) if all(text in line for text in texts)]) < count:
        assert time.monotonic() < deadline, (
            f"{len(found)} of {count} lines with {texts} after {timeout_s:g} s; {path.name} ends:\n{tail_of(path)}"
        )
        time.sleep(_POLL_S)
    return found
