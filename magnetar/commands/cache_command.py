"""`magnetar cache top` and `why`: what fills a running broker's cache, and why an entry is not in it; and `replay`.

The first two only ask; the broker answers from the newest decisions that it keeps (`entryCacheDecisionsKept`). The
third needs no broker: it repeats what one has recorded (`entryCacheRecordDirectory`).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from magnetar.clients.client import CommandError, fail

if TYPE_CHECKING:
    from magnetar.clients.admin_client import Json
    from magnetar.commands.cache_text import Top, Why

PATH = "/admin/v2/magnetar/cache"
SORTS = ("bytes", "hits", "misses", "evictions")
_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})", re.ASCII)


def main(argv: list[str]) -> int:
    """Returns 0, or 1 after one line on stderr; for a replay 1 also where it is not equal to the record."""
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
    parser = argparse.ArgumentParser(
        "magnetar cache",
        description="Ask a running broker about its entry cache, or repeat what its cache did.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    top = actions.add_parser("top", help="which topics fill the cache, or miss it", allow_abbrev=False)
    top.add_argument("--sort", choices=SORTS, default="bytes", help="which come first (default bytes)")
    top.add_argument("-n", type=int, default=10, dest="limit", metavar="N", help="how many (default 10)")
    top.set_defaults(answer=_top)
    why = actions.add_parser(
        "why", help="why an entry is in the cache, or is not: all that is kept about it", allow_abbrev=False
    )
    why.add_argument("topic", metavar="TOPIC", help="name, tenant/namespace/name or persistent://…")
    why.add_argument(
        "entry", type=_position, metavar="LEDGER:ENTRY", help="as in a message id: (LEDGER,ENTRY,…)"
    )
    why.set_defaults(answer=_why)
    replay = actions.add_parser(
        "replay", help="repeat access records, and compare event by event", allow_abbrev=False
    )
    replay.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="entryCacheRecordDirectory, or a part of it"
    )
    for action in (top, why):
        action.add_argument("--json", action="store_true", help="print the broker's answer as it is")
        action.add_argument("--admin-url", metavar="URL", help="(client.conf, else http://localhost:8080)")
    return parser


def _position(text: str) -> tuple[int, int]:
    match = _POSITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not LEDGER:ENTRY, such as 12:7")
    return int(match[1]), int(match[2])


def _top(arguments: argparse.Namespace) -> str:
    from magnetar.commands.cache_text import top_text

    body = _ask(arguments, f"/top?sort={arguments.sort}&limit={arguments.limit}")
    return _json(body) if arguments.json else top_text(cast("Top", body))


def _why(arguments: argparse.Namespace) -> str:
    from magnetar.commands.cache_text import why_text

    ledger_id, entry_id = arguments.entry
    body = _ask(arguments, f"/why/{_topic_path(arguments.topic)}/{ledger_id}/{entry_id}")
    return _json(body) if arguments.json else why_text(cast("Why", body))


def _replay(folders: list[Path]) -> int:
    missing = [str(folder) for folder in folders if not folder.exists()]
    if missing:
        raise CommandError(f"there is no {', '.join(missing)}")
    try:
        from broker.recorder.replay_report import replay_all
    except ImportError as error:
        raise CommandError(f"{error.name} is not installed: pip install 'magnetar[record]'") from None
    return 0 if replay_all(folders, sys.stdout) else 1


def _topic_path(text: str) -> str:
    from broker.model.errors import InvalidTopicName
    from broker.model.topic_name import parse_topic_name

    try:
        name = parse_topic_name(text)
    except InvalidTopicName as error:
        raise CommandError(str(error)) from None
    parts = (name.domain, name.tenant, name.namespace_local, name.local)
    return "/".join(quote(part, safe="") for part in parts)


def _ask(arguments: argparse.Namespace, path: str) -> dict[str, Json]:
    from magnetar.clients.admin_client import admin_url, ask

    body = ask(admin_url(arguments.admin_url), "GET", PATH + path).body
    if not isinstance(body, dict):
        raise CommandError("this broker does not tell of its cache: it is no Magnetar")
    return body


def _json(body: dict[str, Json]) -> str:
    import json  # only when asked for

    return json.dumps(body, indent=2, ensure_ascii=False)
