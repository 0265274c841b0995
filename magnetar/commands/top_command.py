"""`magnetar top`: a screen of a broker's throughput, latency, cache, bookies and busiest topics; any Pulsar will do.

The views of a broker's console (the last hour, the cache, bookies, settings, the cluster) need a broker of Magnetar. With
`--once` or `--json` a view is printed as text, for scripts, and Textual is not needed.
"""

from __future__ import annotations

import argparse
import shutil
import time
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser, add_admin_url, add_tls_options

if TYPE_CHECKING:
    from magnetar.top.source import Source

SORTS = ("rate", "bytes", "backlog", "storage", "misses")
"""Orders of the topics; `magnetar.top.table` has the same."""
VIEWS = ("topics", "hour", "cache", "bookies", "settings", "cluster")
"""Views, in the order of their keys; `magnetar.top.views` has those besides the topics."""
INTERVAL_S_MIN = 0.1
TEXT_WIDTH = 120
"""Characters of a line with `--once` where the output is no terminal."""


def main(argv: list[str]) -> int:
    """Runs `magnetar top`. Returns 0, or 1 after one line on standard error."""
    arguments = _parser().parse_args(argv)
    from magnetar.clients.admin_client import admin_address
    from magnetar.top.source import Source

    try:
        source = Source(admin_address(arguments), arguments.bookie_url)
        if arguments.once or arguments.json:
            print(_once(source, arguments))
        else:
            _screen(source, arguments)
    except CommandError as error:
        return fail("top", error)
    return 0


def _once(source: Source, arguments: argparse.Namespace) -> str:
    from magnetar.top.rates import overview
    from magnetar.top.table import as_json, as_table, chosen

    if arguments.view != "topics":
        return _view(source, arguments)
    before = source.read()
    time.sleep(arguments.interval)
    found = overview(before, source.read())
    topics = chosen(found.topics, arguments.sort, arguments.filter, arguments.limit)
    return as_json(found, topics) if arguments.json else as_table(found, topics)


def _view(source: Source, arguments: argparse.Namespace) -> str:
    from magnetar.clients.admin_client import as_text
    from magnetar.top.views import text_of

    look = source.read(view=arguments.view).look
    if look is None or look.answer is None:
        raise CommandError("" if look is None else look.error)
    if arguments.json:
        return as_text(look.answer.value)
    width = shutil.get_terminal_size((TEXT_WIDTH, 24)).columns
    return "\n".join(text_of(arguments.view, look.answer, width, arguments.filter))


def _screen(source: Source, arguments: argparse.Namespace) -> None:
    try:
        from magnetar.top.screen import TopScreen
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}; pip install 'WHEEL[top]', or use --once") from error
    # The first reading is made before the screen opens, so that a wrong address is one line on the terminal.
    source.read()
    TopScreen(source.read, arguments.interval, arguments.sort, arguments.filter, arguments.view).run()


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "magnetar top",
        description="Watch a broker: throughput, latency, cache, bookies, and the busiest topics, from /metrics of any"
        " Pulsar; the last hour, the reasons of the cache, bookies, settings and cluster from a broker of Magnetar."
        " Keys: 1 to 6 views, Enter subscriptions, s sort, / filter, Escape back, p pause, q quit.",
    )
    add_admin_url(parser)
    add_tls_options(parser)
    add = parser.add_argument
    add("--bookie-url", metavar="URL", help="HTTP port of a bookie on its own, such as http://localhost:8000")
    add(
        "--interval",
        type=_interval,
        default=2.0,
        metavar="S",
        help="seconds between two readings (default 2)",
    )
    add("--view", choices=VIEWS, default="topics", help="the view that is open first (default topics)")
    add("--cluster", action="store_const", const="cluster", dest="view", help="the same as --view cluster")
    add("--sort", choices=SORTS, default="rate", help="order of the topics (default rate)")
    add("--filter", default="", metavar="TEXT", help="only topics, or settings, that have TEXT in them")
    add(
        "-n",
        type=_topics_max,
        default=20,
        dest="limit",
        metavar="N",
        help="topics with --once and --json (default 20)",
    )
    add(
        "--once",
        action="store_true",
        help="print the view as text, and end; topics: what happens within one interval",
    )
    add("--json", action="store_true", help="the same as one JSON object")
    return parser


def _topics_max(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of topics: give 0 or more")
    return int(text)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not INTERVAL_S_MIN <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from {INTERVAL_S_MIN} to 3600")
    return seconds
