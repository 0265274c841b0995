"""The view of the cluster: its brokers with their bundles, and what became of bundles lately. Pure functions.

The typed dictionaries name the shown fields of the console's answer; `broker/console/cluster_page.py` writes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from magnetar.clients.client import visible
from magnetar.top.numbers import count


class BrokerAnswer(TypedDict):
    """One broker."""

    name: str
    """Its name, `host:port` of its admin port."""
    isSelf: bool
    """True for the broker that was asked."""
    leads: bool
    """True for the one that chooses owners."""
    serviceUrl: str
    """Its address for clients."""
    bundleCount: int
    """Bundles that it owns."""


class MoveAnswer(TypedDict):
    """A change of the owner of a bundle."""

    atMs: int
    """Milliseconds since 1970."""
    bundle: str
    """`tenant/namespace/range`."""
    broker: str
    """The broker that noted it."""
    kind: str
    """`taken`, `given up` or `lost`."""
    why: str
    """The reason."""


class ClusterAnswer(TypedDict):
    """`GET /admin/v2/magnetar/console/cluster`."""

    isShared: bool
    """False where the broker owns all topics of a store of its own."""
    isServing: bool
    """False while nothing new opens at the broker that was asked."""
    brokers: list[BrokerAnswer]
    """By name."""
    moves: list[MoveAnswer]
    """Newest first."""


def cluster_lines(found: ClusterAnswer, width: int) -> list[str]:
    """Returns the lines of the view: a line for each broker, and one for each move."""
    if not found["isShared"]:
        return ["This broker owns all topics: its metadata store is its own."]
    lines = []
    if not found["isServing"]:
        lines.append(
            "SUSPENDED: the metadata store does not answer, or leases are of an older session; nothing new opens"
        )
    if not any(one["leads"] for one in found["brokers"]):
        lines.append("NO LEADER")
    names = [visible(one["name"]) for one in found["brokers"]]
    wide = max(map(len, names), default=0)
    for name, one in zip(names, found["brokers"], strict=True):
        words = ("leads" if one["leads"] else "", "asked" if one["isSelf"] else "")
        role = ", ".join(filter(None, words))
        lines.append(
            f"{name.ljust(wide)}  bundles {count(one['bundleCount']).rjust(6)}  {role:<12}  {visible(one['serviceUrl'])}"
        )
    lines += ["", "last moves of bundles"]
    lines += [_move(one, width) for one in found["moves"]]
    return lines


def _move(one: MoveAnswer, width: int) -> str:
    at = datetime.fromtimestamp(one["atMs"] / 1000, UTC)
    why = f"{visible(one['broker'])}: {visible(one['why'])}"
    line = f"{at:%d %b %H:%M:%S}  {visible(one['bundle'])}  {one['kind']:<8}  {why}"
    return line if len(line) <= width else f"{line[: width - 1]}…"
