"""Finds what a test left behind in its namespace: open producers and consumers, unacknowledged messages, backlog.

It asks the admin API, so it works for any Pulsar. Schemas that were refused are counted by our own broker alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final, Protocol, cast
from urllib.parse import quote

from magnetar.kit.errors import KitError

COMPACTION: Final = "__compaction"
"""The subscription by which a broker compacts; tests have no part in it."""
Stats = Mapping[str, object]


class Asked(Protocol):
    """A broker that answers admin requests."""

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Returns the JSON of the answer."""
        ...


OPEN: Final = ("is open", "are open")
"""Ends of the lines on producers and consumers."""


def left_in(broker: Asked, namespace: str, refused_schemas: int) -> list[str]:
    """Returns a line for each thing that is left; `refused_schemas` were refused during the test."""
    try:
        topics = [
            topic
            for domain in ("persistent", "non-persistent")
            for topic in cast("list[str]", broker.ask("GET", f"/admin/v2/{domain}/{namespace}"))
        ]
    except KitError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return [
            f"{namespace} is gone: the test removed it, or restarted a broker that keeps all in memory;"
            " use magnetar.Broker(folder) for a restart"
        ]
    lines = [line for topic in topics for line in _of_topic(broker, topic)]
    if refused_schemas:
        lines.append(f"{_counted(refused_schemas, 'schema')} refused as incompatible")
    return lines


def _of_topic(broker: Asked, topic: str) -> Iterator[str]:
    domain, _, name = topic.partition("://")
    tenant, namespace, local = name.split("/", 2)
    stats = cast(
        "Stats", broker.ask("GET", f"/admin/v2/{domain}/{tenant}/{namespace}/{quote(local, '')}/stats")
    )
    if producers := len(cast("list[object]", stats["publishers"])):
        yield f"{local}: {_counted(producers, 'producer')} {OPEN[producers > 1]}"
    for subscription, facts in cast("Mapping[str, Stats]", stats["subscriptions"]).items():
        if subscription == COMPACTION:
            continue
        at = f"{local}, subscription {subscription}"
        if consumers := len(cast("list[object]", facts["consumers"])):
            yield f"{at}: {_counted(consumers, 'consumer')} {OPEN[consumers > 1]}"
        if unacked := cast("int", facts["unackedMessages"]):
            yield f"{at}: {_counted(unacked, 'message')} received and not acknowledged"
        if backlog := cast("int", facts["msgBacklog"]):
            yield f"{at}: {_counted(backlog, 'message')} in the backlog"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
