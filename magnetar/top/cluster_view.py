"""The view of the cluster: its brokers with their bundles, and what became of bundles lately. Pure functions.

`broker/console/cluster_page.py` writes the answer.
"""

from __future__ import annotations

from datetime import UTC, datetime

from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import visible
from magnetar.top.numbers import count


def cluster_lines(found: AnswerObject, width: int) -> list[str]:
    """Returns the lines of the view: a line for each broker, and one for each move."""
    if not found.value["isShared"]:
        return ["This broker owns all topics: its metadata store is its own."]
    lines = []
    if not found.value["isServing"]:
        lines.append(
            "SUSPENDED: the metadata store does not answer, or leases are of an older session; nothing new opens"
        )
    brokers = list(found.each("brokers"))
    if not any(one.value["leads"] for one in brokers):
        lines.append("NO LEADER")
    names = [visible(one.text("name")) for one in brokers]
    wide = max(map(len, names), default=0)
    for name, one in zip(names, brokers, strict=True):
        words = ("leads" if one.value["leads"] else "", "asked" if one.value["isSelf"] else "")
        role, bundles = ", ".join(filter(None, words)), count(one.number("bundleCount"))
        lines.append(
            f"{name.ljust(wide)}  bundles {bundles:>6}  {role:<12}  {visible(one.text('serviceUrl'))}"
        )
    lines += ["", "last moves of bundles"]
    lines += [_move(one, width) for one in found.each("moves")]
    return lines


def _move(one: AnswerObject, width: int) -> str:
    at = datetime.fromtimestamp(one.amount("atMs") / 1000, UTC)
    why = f"{visible(one.text('broker'))}: {visible(one.text('why'))}"
    line = f"{at:%d %b %H:%M:%S}  {visible(one.text('bundle'))}  {one.text('kind'):<8}  {why}"
    return line if len(line) <= width else f"{line[: width - 1]}…"
