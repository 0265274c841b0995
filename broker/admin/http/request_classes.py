"""Sorts the requests of the admin port into classes, each with a bounded queue of its own. Pure.

A request of one class never waits for a request of another one. So a thousand statistics delay neither a lookup nor
the deletion of a topic. `pressure.py` has the queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.foreign_pages import READS


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests that share a queue."""

    name: str
    """For texts of errors."""
    running_max: int
    """Requests that run at the same time; further ones wait."""
    asking_max: int = 8
    """Requests that wait for other brokers at the same time, beside those that run; further ones wait."""
    paced: bool = True
    """Requests begin one per turn of the loop, among all paced classes, so that messages flow between them."""
    changes: bool = False
    """A request is never ended in the middle: half of its work could be done."""
    has_deadline: bool = True
    """False for answers whose length in time is the reader's, or the test's."""


LOOKUP: Final = RequestClass(name="lookup", running_max=256, paced=False)
"""Requests without which a client cannot work, and those of supervisors."""
READ: Final = RequestClass(name="read", running_max=64)
"""Every other request that changes nothing."""
WRITE: Final = RequestClass(name="write", running_max=32, changes=True)
"""Requests that change something."""
PUBLISH: Final = RequestClass(name="publish", running_max=32, asking_max=16, changes=True)
"""Requests that publish messages. A publish rate may hold them back, which must not delay changes."""
HEAVY: Final = RequestClass(name="heavy", running_max=4, asking_max=4)
"""Reads whose work grows with the number of topics, partitions or entries."""
SCRAPE: Final = RequestClass(name="scrape", running_max=8, has_deadline=False)
"""`/metrics`: scrapes share one text, and a slow scraper may take it slowly."""
ADVANCE: Final = RequestClass(name="advance", running_max=32, changes=True, has_deadline=False)
"""Advances of the clock of `--test-faults`, which take as long as all that falls due: minutes on a busy machine."""
CLASSES: Final = (LOOKUP, READ, WRITE, PUBLISH, HEAVY, SCRAPE, ADVANCE)

CONSOLE_EVENTS: Final = "/admin/v2/magnetar/console/events"
"""The live stream of the console's pages."""
TEST_CLOCK: Final = "/magnetar/test/clock"
"""The clock of a broker with `--test-faults`, as `CLOCK` in `broker/faults/routes.py`, which is above this package."""
_EXCEPTIONS: Final[Mapping[str, RequestClass]] = {
    "/admin/v2/brokers/health": LOOKUP,
    "/admin/v2/brokers/ready": LOOKUP,
    "/admin/v2/magnetar/console/cache": HEAVY,
    "/metrics": SCRAPE,
    "/metrics/": SCRAPE,
}
"""Routes by their whole path."""
_LAST_PARTS: Final[Mapping[str, RequestClass]] = {
    "partitions": LOOKUP,
    "partitioned-stats": HEAVY,
    "partitioned-internalStats": HEAVY,
    "partitioned-internal-info": HEAVY,
    "internalStats": HEAVY,
    "internal-info": HEAVY,
    "analyzeBacklog": HEAVY,
    "backlog-quota-check": HEAVY,
    "topics": HEAVY,
    "destinations": HEAVY,
    "metrics": HEAVY,
    "mbeans": HEAVY,
}
"""Reads by the last part of their path, wherever it stands."""


def class_of(method: str, path: str) -> RequestClass | None:
    """Returns the class of a request; `path` is that of its route, with names in braces.

    None stands for a WebSocket and for the console's stream, which live long and have limits of their own.
    """
    if path.startswith("/ws/") or path == CONSOLE_EVENTS:
        return None
    if path.startswith("/lookup/"):
        return LOOKUP
    if path.startswith("/topics/"):
        return PUBLISH
    if method not in READS:
        return ADVANCE if path == TEST_CLOCK else WRITE
    return _EXCEPTIONS.get(path) or _LAST_PARTS.get(path.rpartition("/")[2], READ)
