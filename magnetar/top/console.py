"""ConsoleAnswers: the answers of a Magnetar broker's console, which the views besides the topics show."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.clients.admin_client import AdminAddress, send
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import CommandError

if TYPE_CHECKING:
    from http.client import HTTPResponse

_PREFIX: Final = "/admin/v2/magnetar/console"
COST_FACTOR: Final = 200
"""A request comes at the earliest after this many times of what the last one cost the broker, as the console's page does."""
WAIT_S_MAX: Final = 60.0
"""The longest such time."""


class _Route(NamedTuple):
    path: str
    least_s: float
    """Seconds for which an answer is good."""


ROUTES: Final[Mapping[str, _Route]] = {
    # The hour moves by ten seconds, and settings seldom.
    "hour": _Route("/events", 10.0),
    "cache": _Route("/cache?top=20", 1.0),
    "bookies": _Route("/bookies", 1.0),
    "settings": _Route("/settings", 10.0),
    "cluster": _Route("/cluster", 1.0),
}
"""The path of each view's answer."""
OVERVIEW: Final = "overview"
"""The answer that is for the lines above every view."""
_ALL: Final[Mapping[str, _Route]] = {**ROUTES, OVERVIEW: _Route("/overview", 1.0)}


class Look(NamedTuple):
    """An answer, or the reason why there is none."""

    answer: AnswerObject | None
    """The answer, see `docs/reference/console.md`; None with an error."""
    error: str = ""
    """The refusal, or the failure of the request."""


class ConsoleAnswers:
    """Asks one broker, no more often than an answer changes."""

    def __init__(self, address: AdminAddress) -> None:
        """Asks nothing yet."""
        self._address = address
        self._known: dict[str, tuple[float, AnswerObject]] = {}

    def look(self, view: str) -> Look:
        """Returns the answer for `OVERVIEW` or a view of `ROUTES`. Blocks while the broker answers."""
        due_s, known = self._known.get(view, (0.0, None))
        if known is not None and time.monotonic() < due_s:
            return Look(known)
        route = _ALL[view]
        try:
            answer = self._ask(route.path)
        except CommandError as error:
            return Look(None, str(error))
        cost_s = answer.amount("costMs") / 1000 if "costMs" in answer.value else 0.0
        wait_s = max(route.least_s, min(cost_s * COST_FACTOR, WAIT_S_MAX))
        self._known[view] = (time.monotonic() + wait_s, answer)
        return Look(answer)

    def _ask(self, path: str) -> AnswerObject:
        read = _first_event if path == "/events" else None
        response = send(self._address, "GET", _PREFIX + path, read=read)
        try:
            return AnswerObject(json.loads(response.content))
        except (TypeError, ValueError):
            raise CommandError(f"{self._address.url} answers, but not as a console does") from None


def _first_event(response: HTTPResponse) -> bytes:
    """Returns the data of a stream's first event, which has the whole history; the stream itself has no end."""
    data = b""
    for line in response:
        if not line.strip():
            break
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ")
    return data
