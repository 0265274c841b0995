"""The view of the cluster: its brokers with their bundles, and what became of bundles lately. Pure functions.

`broker/console/cluster_page.py` writes the answer.
"""

from __future__ import annotations

from datetime import UTC, datetime

from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import visible
from magnetar.top.numbers import age, count, rate


def cluster_lines(found: AnswerObject) -> list[str]:
    """Returns the lines of the view: a line for each broker, and one for each move.

    A line may be longer than the screen, which folds it then: the reason of a move is wanted to its end.
    """
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
        messages, report = rate(one.number("messageRate")), age(one.amount("reportAgeMs"))
        lines.append(
            f"{name.ljust(wide)}  bundles {bundles:>6}  messages {messages:>7} ({report})  {role:<12}"
            f"  {visible(one.text('serviceUrl'))}"
        )
    lines += ["", "last moves of bundles"]
    lines += [_move(one) for one in found.each("moves")]
    return lines


def _move(one: AnswerObject) -> str:
    at = datetime.fromtimestamp(one.amount("atMs") / 1000, UTC)
    why = f"{visible(one.text('broker'))}: {visible(one.text('why'))}"
    return f"{at:%d %b %H:%M:%S}  {visible(one.text('bundle'))}  {one.text('kind'):<8}  {why}"
