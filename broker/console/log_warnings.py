"""LogWarnings: the log's last warnings and errors, for the console."""

from __future__ import annotations

import logging
from collections import deque
from itertools import count
from typing import Final

from foundation.value import Json

KEPT: Final = 200
"""Lines that are kept."""
LINE_MAX: Final = 1_000
"""Characters of a line; the rest is cut."""


class LogWarnings(logging.Handler):
    """Keeps what the process logs from WARNING on.

    The lines are those of the log, in which no secret may stand; a traceback is left out.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: deque[dict[str, Json]] = deque(maxlen=KEPT)
        self._numbers = count(1)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record; called by `logging` in any thread."""
        try:
            text = record.getMessage()[:LINE_MAX]
        except Exception:  # noqa: BLE001
            # As the handlers of `logging` do: a wrong format must not fail the code that logs.
            self.handleError(record)
            return
        if not text.isprintable():
            # Clients choose names in it: a line break in one would look like a second line.
            text = "".join(
                one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
            )
        self._kept.append(
            {
                "atMs": int(record.created * 1000),
                "level": record.levelname,
                "logger": record.name,
                "text": text,
                "number": next(self._numbers),
            }
        )

    def after(self, number: int) -> list[dict[str, Json]]:
        """Returns the kept lines whose number is higher, oldest first."""
        # Over a copy: other threads add to it.
        kept = list(self._kept)
        return [line for line in kept if int(str(line["number"])) > number]
