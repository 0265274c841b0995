"""`magnetar top`: a screen of a broker's throughput, latency, cache, bookie and busiest topics; any Pulsar will do.

With `--once` or `--json` two readings are printed as text, for scripts, and Textual is not needed.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, fail
from magnetar.commands.shared_options import add_admin_url, add_tls_options

if TYPE_CHECKING:
    from magnetar.top.source import Source

SORTS = ("rate", "bytes", "backlog", "storage", "misses")
"""Orders of the topics; `magnetar.top.table` has the same."""
INTERVAL_S_MIN = 0.1


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

    before = source.read()
    time.sleep(arguments.interval)
    found = overview(before, source.read())
    topics = chosen(found.topics, arguments.sort, arguments.filter, arguments.limit)
    return as_json(found, topics) if arguments.json else as_table(found, topics)


def _screen(source: Source, arguments: argparse.Namespace) -> None:
    try:
        from magnetar.top.screen import TopScreen
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}; pip install 'WHEEL[top]', or use --once") from error
    # The first reading is made before the screen opens, so that a wrong address is one line on the terminal.
    source.read()
    TopScreen(source.read, arguments.interval, arguments.sort, arguments.filter).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "magnetar top",
        description="Watch a broker: throughput, latency, cache, bookie, and the busiest topics, from /metrics of any"
        " Pulsar. Keys: s sort, / filter, Escape no filter, Space pause, q quit.",
        allow_abbrev=False,
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
    add("--sort", choices=SORTS, default="rate", help="order of the topics (default rate)")
    add("--filter", default="", metavar="TEXT", help="only topics whose name has TEXT in it")
    add(
        "-n",
        type=_topics_max,
        default=20,
        dest="limit",
        metavar="N",
        help="topics with --once and --json (default 20)",
    )
    add("--once", action="store_true", help="print what happens within one interval, and end")
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
