"""`magnetar cache`: the largest users of a broker's entry cache, one entry's history, and replays of records.

`top` and `why` ask a running broker, which answers from the newest decisions that it keeps
(`entryCacheDecisionsKept`). `replay` needs no broker: it feeds an access record (`entryCacheRecordDirectory`) to the
cache's own code again and compares the outcomes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import CommandError, fail, topic_path
from magnetar.process.shared_options import CommandParser, add_admin_url

PATH = "/admin/v2/magnetar/cache"
"""In front of each route of `broker/admin/cluster/cache.py`."""
SORTS = ("bytes", "hits", "misses", "evictions")
"""Orders of `top`; the broker refuses others."""
_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})", re.ASCII)


def main(argv: list[str]) -> int:
    """Returns 0, or 1 after one line on stderr. A replay that differs from its record returns 1 too."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.action == "replay":
            return _replay(arguments.folders)
        text: str = arguments.answer(arguments)
    except CommandError as error:
        return fail("cache", error)
    print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "magnetar cache",
        description="Ask a running broker about its entry cache, or replay an access record.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    top = actions.add_parser("top", help="list the topics that fill the cache or miss it")
    top.add_argument("--sort", choices=SORTS, default="bytes", help="order of the topics (default bytes)")
    top.add_argument(
        "-n", type=int, default=10, dest="limit", metavar="N", help="number of topics (default 10)"
    )
    top.set_defaults(answer=_top)
    why = actions.add_parser("why", help="print all that the broker keeps about an entry in the cache")
    why.add_argument("topic", metavar="TOPIC", help="name, tenant/namespace/name or persistent://…")
    why.add_argument(
        "entry", type=_position, metavar="LEDGER:ENTRY", help="as in a message id: (LEDGER,ENTRY,…)"
    )
    why.set_defaults(answer=_why)
    replay = actions.add_parser("replay", help="replay access records and compare event by event")
    replay.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="entryCacheRecordDirectory, or a part of it"
    )
    for action in (top, why):
        action.add_argument("--json", action="store_true", help="print the broker's answer as it is")
        add_admin_url(action)
    return parser


def _position(text: str) -> tuple[int, int]:
    match = _POSITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not LEDGER:ENTRY, such as 12:7")
    return int(match[1]), int(match[2])


def _top(arguments: argparse.Namespace) -> str:
    from magnetar.commands.cache_text import top_text

    return _answer(arguments, f"/top?sort={arguments.sort}&limit={arguments.limit}", top_text)


def _why(arguments: argparse.Namespace) -> str:
    from magnetar.commands.cache_text import why_text

    ledger_id, entry_id = arguments.entry
    return _answer(arguments, f"/why/{topic_path(arguments.topic)}/{ledger_id}/{entry_id}", why_text)


def _replay(folders: list[Path]) -> int:
    missing = [str(folder) for folder in folders if not folder.exists()]
    if missing:
        raise CommandError(f"no such folder: {', '.join(missing)}; name an entryCacheRecordDirectory")
    try:
        from broker.recorder.replay_report import replay_all
    except ImportError as error:
        raise CommandError(f"{error.name} is not installed: pip install 'WHEEL[record]'") from None
    return 0 if replay_all(folders, sys.stdout) else 1


def _answer(arguments: argparse.Namespace, path: str, in_words: Callable[[AnswerObject], str]) -> str:
    """Returns the broker's answer in words, or as it is with `--json`."""
    from magnetar.clients.admin_client import admin_address, as_text, ask_for_object

    body = ask_for_object(admin_address(arguments), PATH + path, "a description of a cache")
    return as_text(body) if arguments.json else in_words(AnswerObject(body))
