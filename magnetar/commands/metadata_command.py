"""`magnetar metadata`: shows nodes of a metadata store in words, compares two stores, verifies one, and serves a file.

All actions but `serve` only read. The store may be in use: a file is read as of one moment, ZooKeeper node by node.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foundation.model.errors import MetadataError
from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    from magnetar.metadata.findings import Finding
    from magnetar.snapshot.node_rows import Node

ACTIONS: Final = ("dump", "get", "diff", "verify", "serve")
"""The actions, for the shell completion."""
_FILE: Final = "metadata.sqlite"
_SOCKET: Final = "metadata.sock"
_PROGRESS_S: Final = 2.0
_NODES_PER_LOOK: Final = 1000
_URL_HELP: Final = "data folder of a broker, FILE, file:FILE or zk:host:port[/chroot]"


def main(argv: list[str]) -> int:
    """Returns 0; 1 with differences or findings, or after one line on stderr."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except (CommandError, MetadataError, OSError) as error:
        return fail("metadata", CommandError(str(error)))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "magnetar metadata",
        description="Look at a metadata store, Magnetar's or Apache's, without changing it; it may be in use. Or serve "
        "an embedded store to several brokers.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    dump = actions.add_parser("dump", help="print every node in words")
    dump.add_argument("url", metavar="URL", help=_URL_HELP)
    dump.add_argument("--below", metavar="PATH", default="/", help="only nodes at or below this path")
    dump.set_defaults(run=_dump)
    get = actions.add_parser("get", help="print one node in words, and the names below it")
    get.add_argument("url", metavar="URL", help=_URL_HELP)
    get.add_argument("path", metavar="PATH", help="such as /admin/policies/public/default")
    get.set_defaults(run=_get)
    diff = actions.add_parser("diff", help="compare two stores; exit code 1 if they differ")
    diff.add_argument("first", metavar="A", help=_URL_HELP)
    diff.add_argument("second", metavar="B", help=_URL_HELP)
    diff.set_defaults(run=_diff)
    verify = actions.add_parser(
        "verify",
        help="name what cannot be read or points nowhere; exit code 1 with findings",
        description="Name values that are not of the form that their path asks for, and names that point nowhere: ledgers "
        "without metadata, cursors without a list or beyond it, partitions above their topic's count, marks of deletions "
        "that no intent carries out, tenants, namespaces, clusters, groups and schemas that do not exist. Exit code 1 with "
        "findings.",
    )
    verify.add_argument("url", metavar="URL", help=_URL_HELP)
    verify.set_defaults(run=_verify)
    serve = actions.add_parser(
        "serve",
        help="share an embedded store among the brokers of this machine",
        description="Share an embedded store among the brokers of this machine, which have metadataStoreUrl=unix:SOCKET. "
        "Only processes of the same user can connect. Ends at SIGTERM or SIGINT; brokers wait for the next start.",
    )
    serve.add_argument("place", metavar="PLACE", help="data folder, or FILE, which is made")
    serve.add_argument("--socket", type=Path, metavar="SOCKET", help=f"default: {_SOCKET} beside the file")
    serve.set_defaults(run=_serve)
    return parser


def store_url(text: str) -> str:
    """Returns the store's URL for the words of a user, who may name a data folder or a file."""
    if text.startswith("zk:"):
        return text
    return f"file:{_file(text)}"


def _file(text: str) -> Path:
    path = Path(text.removeprefix("file:"))
    return path / _FILE if path.is_dir() else path


def _nodes(url: str) -> Iterator[Node]:
    """Yields the nodes, and says on stderr every two seconds how many came."""
    from magnetar.snapshot.node_sources import nodes_of

    told = time.monotonic()
    for count, node in enumerate(nodes_of(url), 1):
        yield node
        if not count % _NODES_PER_LOOK and time.monotonic() - told >= _PROGRESS_S:
            told = time.monotonic()
            print(f"{url}: {count:,} nodes read", file=sys.stderr, flush=True)


def _dump(arguments: argparse.Namespace) -> int:
    from magnetar.metadata.node_words import words_of

    below = arguments.below.rstrip("/")
    for node in _nodes(store_url(arguments.url)):
        if node.path == below or node.path.startswith(f"{below}/"):
            _print(words_of(node))
    return 0


def _get(arguments: argparse.Namespace) -> int:
    from magnetar.metadata.node_words import words_of
    from magnetar.snapshot.node_sources import node_at

    if not arguments.path.startswith("/"):
        raise CommandError(f"{arguments.path}: a path begins with a slash, such as /admin/policies")
    path = arguments.path.rstrip("/")
    url = store_url(arguments.url)
    node, names = node_at(url, path)
    if node is None and not names:
        raise CommandError(f"{url} has no node {path or '/'}")
    if node is None:
        _print([f"{path or '/'}: no value"])
    else:
        _print(words_of(node))
    if names:
        _print([f"  {len(names):,} below it: {' '.join(names)}"])
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from magnetar.metadata.differences import differences

    status = 0
    for lines in differences(_nodes(store_url(arguments.first)), _nodes(store_url(arguments.second))):
        _print(lines)
        status = 1
    return status


def _verify(arguments: argparse.Namespace) -> int:
    url = store_url(arguments.url)
    nodes, findings = _look(url)
    if findings:
        # A broker that uses the store changes one node after the other. What stays in a second look is broken.
        _, again = _look(url)
        findings = [finding for finding in findings if finding in again]
    _print([f"{path}: {text}" for path, text in findings])
    print(f"{url}: {nodes:,} nodes, {len(findings):,} findings", file=sys.stderr)
    return 1 if findings else 0


def _look(url: str) -> tuple[int, list[Finding]]:
    from magnetar.metadata.findings import facts_of, findings_of
    from magnetar.snapshot.node_sources import damaged_records

    facts = facts_of(_nodes(url))
    facts.unreadable += [
        (path, "does not fit its checksum: the file is damaged") for path in damaged_records(url)
    ]
    return facts.nodes, findings_of(facts)


def _serve(arguments: argparse.Namespace) -> int:
    # Imported here: the other actions need no server.
    import asyncio

    file = _file(arguments.place)
    path = (arguments.socket or file.with_name(_SOCKET)).absolute()
    asyncio.run(_serve_until_stopped(file, path))
    return 0


async def _serve_until_stopped(file: Path, path: Path) -> None:
    import asyncio
    import signal

    from bookkeeper.metadata.metadata_server import MetadataServer

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await MetadataServer.start(file, path)
    print(f"metadataStoreUrl=unix:{path}", flush=True)
    await stopped.wait()
    await server.close()


def _print(lines: list[str]) -> None:
    """Prints lines with whatever a terminal would obey as escapes: the store has names and texts of clients."""
    for line in lines:
        print("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line))
