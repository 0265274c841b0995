"""`magnetar subscription`: the holes of a subscription, and the messages that backlog quotas have taken.

Both ask a running broker. `why` is the sibling of `magnetar cache why`, which asks for one entry. The typed dictionaries
name the fields of the answers that are shown; `broker/admin/topics/holes.py` writes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypedDict
from urllib.parse import quote

from magnetar.admin.output import aligned
from magnetar.clients.client import CommandError, fail
from magnetar.commands.shared_options import CommandParser, add_admin_url, topic_path

PATH = "/admin/v2/magnetar"
"""In front of each route of `broker/admin/topics/holes.py`."""


class HoleRunRow(TypedDict):
    """Consecutive unacknowledged entries in the same place."""

    first: str
    """Position of the first one, `ledger:entry`."""
    last: str
    """Position of the last one."""
    entries: int
    """Their number."""
    place: str
    """`consumer`, `redelivery`, `delayed`, `transaction`, `ahead` or `lost`."""
    consumer: str | None
    """Name of the consumer in the place `consumer`."""
    readAfter: str | None
    """Time of the last look before the first entry was read; None = not known."""
    readBefore: str | None
    """Time of the first look after that; None = it was read since the last look."""


class SubscriptionWhy(TypedDict):
    """`GET /admin/v2/magnetar/subscriptions/why/…`, as far as it is shown."""

    topic: str
    """Full name."""
    subscription: str
    """Name of the subscription."""
    type: str
    """Pulsar's word for the type."""
    backlog: int
    """Unacknowledged entries, those included that were not read yet."""
    acknowledgedRanges: int
    """Ranges of acknowledged entries after unacknowledged ones."""
    acknowledgedInMemoryOnly: int
    """Acknowledged entries that a crash would deliver again."""
    redelivered: int
    """Entries that were lost and are delivered again."""
    holes: list[HoleRunRow]
    """The first runs of holes."""
    holesLeftOut: int
    """Further runs."""
    conclusion: str
    """The answer in sentences."""


class EvictionRow(TypedDict):
    """Messages that a quota took from a subscription."""

    at: str
    """Time."""
    subscription: str
    """Name of the subscription."""
    quota: str
    """Type of the quota."""
    limit: int
    """The quota in bytes or seconds."""
    after: str
    """The mark-delete position before."""
    through: str
    """The last entry taken."""
    entries: int
    """Entries taken."""


class Evictions(TypedDict):
    """`GET /admin/v2/magnetar/evictions/…`."""

    topic: str
    """Full name."""
    entriesEvicted: dict[str, int]
    """Entries taken since the topic was opened, by type of the quota."""
    evictions: list[EvictionRow]
    """The newest ones, the oldest of them first."""


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


def _answer(arguments: argparse.Namespace, path: str, in_words: Callable[[Any], str]) -> str:
    """Returns the broker's answer in words, or as it is with `--json`."""
    from magnetar.clients.admin_client import admin_address, as_text, ask_for_object

    body = ask_for_object(admin_address(arguments), PATH + path, "a description")
    return as_text(body) if arguments.json else in_words(body)


def why_text(why: SubscriptionWhy) -> str:
    """Returns a head, a line per run of holes, and the conclusion."""
    head = (
        f"{why['topic']} {why['subscription']} ({why['type']}): backlog {why['backlog']:,}, "
        f"{why['acknowledgedRanges']:,} acknowledged ranges"
    )
    if why["acknowledgedInMemoryOnly"]:
        head += f", {why['acknowledgedInMemoryOnly']:,} acknowledged entries in memory only"
    if why["redelivered"]:
        head += f", {why['redelivered']:,} lost entries delivered again"
    rows: list[tuple[str, ...]] = [("FIRST", "LAST", "ENTRIES", "PLACE", "READ BETWEEN", "AND")]
    rows += [_hole(one) for one in why["holes"]]
    lines = [head, *(aligned(rows) if len(rows) > 1 else [])]
    if why["holesLeftOut"]:
        lines.append(f"… and {why['holesLeftOut']:,} more (-n)")
    return "\n".join([*lines, why["conclusion"]])


def _hole(one: HoleRunRow) -> tuple[str, ...]:
    place = f"{one['place']} {one['consumer']}" if one["consumer"] else one["place"]
    return (
        one["first"],
        one["last"],
        f"{one['entries']:,}",
        place,
        one["readAfter"] or "?",
        one["readBefore"] or "now",
    )


def evictions_text(found: Evictions) -> str:
    """Returns a line per eviction, and the sums."""
    if not found["evictions"]:
        return f"{found['topic']}: no backlog quota has taken a message since the topic was opened"
    rows: list[tuple[str, ...]] = [("AT", "SUBSCRIPTION", "QUOTA", "LIMIT", "AFTER", "THROUGH", "ENTRIES")]
    rows += [
        (
            one["at"],
            one["subscription"],
            one["quota"],
            f"{one['limit']:,}",
            one["after"],
            one["through"],
            f"{one['entries']:,}",
        )
        for one in found["evictions"]
    ]
    sums = ", ".join(f"{entries:,} by {kind}" for kind, entries in found["entriesEvicted"].items())
    return "\n".join([f"{found['topic']}: entries taken {sums}", *aligned(rows)])
