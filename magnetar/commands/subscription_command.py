"""`magnetar subscription`: the holes of a subscription, and the messages that backlog quotas have taken.

Both ask a running broker. `why` is the sibling of `magnetar cache why`, which asks for one entry. The typed dictionaries
name the fields of the answers that are shown; `broker/admin/topics/holes.py` writes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from urllib.parse import quote

from magnetar.admin.output import aligned
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import CommandError, fail, topic_path
from magnetar.process.shared_options import CommandParser, add_admin_url

PATH = "/admin/v2/magnetar"
"""In front of each route of `broker/admin/topics/holes.py`."""


def main(argv: list[str]) -> int:
    """Returns 0, or 1 after one line on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        text: str = arguments.answer(arguments)
    except CommandError as error:
        return fail("subscription", error)
    print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "magnetar subscription",
        description="Ask a running broker where unacknowledged and missing messages are.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    why = actions.add_parser(
        "why", help="list unacknowledged entries that were read, their places, and since when"
    )
    why.add_argument("topic", metavar="TOPIC", help="name, tenant/namespace/name or persistent://…")
    why.add_argument("subscription", metavar="SUBSCRIPTION", help="its name")
    why.add_argument(
        "-n", type=int, default=20, dest="limit", metavar="N", help="number of holes (default 20)"
    )
    why.set_defaults(answer=_why)
    evictions = actions.add_parser(
        "evictions", help="list messages that backlog quotas took from subscriptions"
    )
    evictions.add_argument("topic", metavar="TOPIC", help="name, tenant/namespace/name or persistent://…")
    evictions.set_defaults(answer=_evictions)
    for action in (why, evictions):
        action.add_argument("--json", action="store_true", help="print the broker's answer as it is")
        add_admin_url(action)
    return parser


def _why(arguments: argparse.Namespace) -> str:
    name = quote(arguments.subscription, safe="")
    path = f"/subscriptions/why/{topic_path(arguments.topic)}/{name}?limit={arguments.limit}"
    return _answer(arguments, path, why_text)


def _evictions(arguments: argparse.Namespace) -> str:
    return _answer(arguments, f"/evictions/{topic_path(arguments.topic)}", evictions_text)


def _answer(arguments: argparse.Namespace, path: str, in_words: Callable[[AnswerObject], str]) -> str:
    """Returns the broker's answer in words, or as it is with `--json`."""
    from magnetar.clients.admin_client import admin_address, as_text, ask_for_object

    body = ask_for_object(admin_address(arguments), PATH + path, "a description")
    return as_text(body) if arguments.json else in_words(AnswerObject(body))


def why_text(why: AnswerObject) -> str:
    """Returns a head, a line per run of holes, and the conclusion."""
    head = (
        f"{why.text('topic')} {why.text('subscription')} ({why.text('type')}): backlog {why.amount('backlog'):,}, "
        f"{why.amount('acknowledgedRanges'):,} acknowledged ranges"
    )
    if in_memory := why.amount("acknowledgedInMemoryOnly"):
        head += f", {in_memory:,} acknowledged entries in memory only"
    if redelivered := why.amount("redelivered"):
        head += f", {redelivered:,} lost entries delivered again"
    rows: list[tuple[str, ...]] = [("FIRST", "LAST", "ENTRIES", "PLACE", "READ BETWEEN", "AND")]
    rows += map(_hole, why.each("holes"))
    lines = [head, *(aligned(rows) if len(rows) > 1 else [])]
    if left_out := why.amount("holesLeftOut"):
        lines.append(f"… and {left_out:,} more (-n)")
    return "\n".join([*lines, why.text("conclusion")])


def _hole(one: AnswerObject) -> tuple[str, ...]:
    place = one.text("place")
    return (
        one.text("first"),
        one.text("last"),
        f"{one.amount('entries'):,}",
        f"{place} {one.text('consumer')}" if one.value["consumer"] else place,
        str(one.value["readAfter"] or "?"),
        str(one.value["readBefore"] or "now"),
    )


def evictions_text(found: AnswerObject) -> str:
    """Returns a line per eviction, and the sums."""
    topic, evictions = found.text("topic"), list(found.each("evictions"))
    if not evictions:
        return f"{topic}: no backlog quota has taken a message since the topic was opened"
    rows: list[tuple[str, ...]] = [("AT", "SUBSCRIPTION", "QUOTA", "LIMIT", "AFTER", "THROUGH", "ENTRIES")]
    for one in evictions:
        at, subscription, quota, after, through = map(
            one.text, ("at", "subscription", "quota", "after", "through")
        )
        limit, entries = one.amount("limit"), one.amount("entries")
        rows.append((at, subscription, quota, f"{limit:,}", after, through, f"{entries:,}"))
    taken = AnswerObject(found.value["entriesEvicted"])
    sums = ", ".join(f"{taken.amount(kind):,} by {kind}" for kind in taken.value)
    return "\n".join([f"{topic}: entries taken {sums}", *aligned(rows)])
