"""`magnetar bookie dump`, `check`, `index rebuild`, `compact`: inspect and mend the files of a bookie.

They find the files by the bookie's own settings (`--conf`, `--data`, `--set`). Results go to standard output, progress
to standard error. Exit codes: 0 done, 1 failed or damage found, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser, add_settings_options

if TYPE_CHECKING:
    from bookie_stub.config.settings import BookieSettings
    from bookie_stub.tools.index_rebuild import RebuildReport

_LISTED_MAX = 100
_POLL_S = 0.5
_TIMEOUT_S = 10


def main(argv: list[str]) -> int:
    """Runs the tool that the first word names; returns the exit code."""
    arguments = _parser().parse_args(argv)
    from bookie_stub.base.errors import BookieError
    from foundation.settings.errors import SettingsError

    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise  # An OSError too, but the caller ends quietly when the reader of our output has gone (`| head`).
    except (CommandError, BookieError, OSError) as error:
        return fail(f"bookie {argv[0]}", error)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar bookie")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    dump = actions.add_parser("dump", help="print files as text")
    dump.add_argument(
        "kind",
        choices=("journal", "entrylog", "index", "ledger"),
        help="journal and entrylog: their records; index: the place of each entry; ledger: the state of each ledger",
    )
    dump.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="file or directory (the settings')")
    dump.add_argument("--ledger", type=int, metavar="ID", help="only records of this ledger")
    dump.set_defaults(run=_dump)

    check = actions.add_parser("check", help="read every entry and list what is damaged")
    check.set_defaults(run=_check)

    index = actions.add_parser("index", help="work on the indexes")
    works = index.add_subparsers(dest="work", required=True, metavar="WORK")
    rebuild = works.add_parser("rebuild", help="rebuild the indexes from the entry logs")
    rebuild.add_argument(
        "--ledgers", action="store_true", help="the ledger index too; every ledger is fenced then"
    )
    rebuild.set_defaults(run=_rebuild)

    compact = actions.add_parser("compact", help="free what deleted ledgers take up")
    compact.add_argument("--minor", action="store_true", help="a minor compaction (default: a major one)")
    compact.add_argument(
        "--url", metavar="URL", help="of a running bookie's HTTP port, http://localhost:8000"
    )
    compact.set_defaults(run=_compact)

    for action in (dump, check, rebuild, compact):
        add_settings_options(action, "--conf", "--config", conf_help="bookkeeper.conf")
    return parser


def _settings(arguments: argparse.Namespace) -> BookieSettings:
    from bookie_stub.config.rules import load_bookie_settings
    from bookie_stub.config.settings import BookieSettings
    from foundation.settings.load import with_data

    overrides = with_data(arguments.set, arguments.data)
    return BookieSettings.of(load_bookie_settings(arguments.conf, environ=os.environ, overrides=overrides))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _dump(arguments: argparse.Namespace) -> int:
    for line in _lines(arguments):
        print(line)
    return 0


def _lines(arguments: argparse.Namespace) -> Iterator[str]:
    from bookie_stub.tools import dump

    places: list[Path] = arguments.paths
    if not places:
        settings = _settings(arguments)
        places = {
            "journal": list(settings.journal_directories),
            "entrylog": list(settings.ledger_directories),
        }.get(arguments.kind, list(settings.index_directories))
    if arguments.kind == "journal":
        for path in dump.files_in(places, ".txn"):
            yield from dump.journal_lines(path, arguments.ledger)
    elif arguments.kind == "entrylog":
        for path in dump.files_in(places, ".log"):
            yield from dump.entry_log_lines(path, arguments.ledger)
    else:
        lines = dump.location_lines if arguments.kind == "index" else dump.ledger_lines
        for place in places:
            yield from lines(place, arguments.ledger)


def _check(arguments: argparse.Namespace) -> int:
    from bookie_stub.tools.check import check
    from bookie_stub.tools.dump import current
    from bookie_stub.tools.index_rebuild import require_directories

    settings = _settings(arguments)
    require_directories(
        (*settings.journal_directories, *settings.ledger_directories, *settings.index_directories)
    )
    storages = zip(settings.ledger_directories, settings.index_directories, strict=True)
    found = check(
        [current(path) for path in settings.journal_directories],
        [(current(logs), current(index)) for logs, index in storages],
        settings.frame_bytes_max,
        _say,
    )
    for line in found.notes:
        print(f"note: {line}")
    for line in found.damaged[:_LISTED_MAX]:
        print(f"damaged: {line}")
    if len(found.damaged) > _LISTED_MAX:
        print(f"damaged: {len(found.damaged) - _LISTED_MAX} more")
    print(
        f"{found.entries} entries, {len(found.damaged)} damaged; digest fits {found.verified},"
        f" not verifiable {found.unverifiable}"
    )
    return 1 if found.damaged else 0


def _rebuild(arguments: argparse.Namespace) -> int:
    from bookie_stub.disk.cookie import COOKIE_FILE
    from bookie_stub.tools.dump import current
    from bookie_stub.tools.index_rebuild import rebuild, require_directories
    from magnetar.process.bookie_metadata import closed_entries

    settings = _settings(arguments)
    count = len(settings.ledger_directories)
    require_directories(
        (*settings.journal_directories, *settings.ledger_directories, *settings.index_directories)
    )
    journals = [current(path) for path in settings.journal_directories]
    directories = zip(settings.ledger_directories, settings.index_directories, strict=True)
    cookie = current(settings.ledger_directories[0]) / COOKIE_FILE
    with closed_entries(settings, cookie, _say) as closed:
        # One directory after the other: a rebuild that is interrupted leaves the finished ones usable, and is
        # repeated for the rest.
        for place, (logs, index) in enumerate(directories):
            done = rebuild(
                current(logs),
                current(index),
                journals,
                ledgers_too=arguments.ledgers,
                share=(place, count),
                entry_bytes_max=settings.frame_bytes_max,
                closed=closed,
                say=_say,
            )
            for line in _notes(done):
                print(f"note: {line}")
            print(
                f"{index}: {done.entries} entries of {done.ledgers} ledgers, {done.skipped} of deleted ledgers left out"
            )
    return 0


def _notes(done: RebuildReport) -> Iterator[str]:
    yield from done.flaws
    if done.rescued:
        yield f"{done.rescued} entries after damage were found where the old location index had them"
    if done.restored:
        yield f"{done.restored} entries that the entry logs have lost were taken from the journals"
    if done.unreadable:
        yield f"{done.unreadable} entries are lost here; they are answered with an I/O error, as `check` lists them"
    if done.limbo:
        yield f"{done.limbo} ledgers may have lost entries: what they do not have is answered as unknown"
    if done.lossy:
        yield "ledgers without entries may be forgotten; the next start asks the metadata store for them"


def _compact(arguments: argparse.Namespace) -> int:
    if arguments.url is not None:
        return _compact_online(arguments.url.rstrip("/"), minor=arguments.minor)
    from bookie_stub.compose.bookie import Bookie
    from bookie_stub.tools.index_rebuild import require_directories
    from bookie_stub.upkeep.directory_compactions import ForcedRound

    settings = _settings(arguments)
    require_directories(
        (*settings.journal_directories, *settings.ledger_directories, *settings.index_directories)
    )
    # No limit on the rate: with no clients to disturb, the tool may use the whole disk.
    settings = replace(settings, collection=replace(settings.collection, rate=0))
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    bookie = Bookie.open(settings, posted.put)
    try:
        collection, stats = bookie.upkeep.collector, bookie.stats.collection
        collection.force(ForcedRound(arguments.minor, not arguments.minor, without_free_space=True))
        _run_until(
            lambda: not collection.forced,
            posted,
            lambda: f"{stats.reclaimed_by_deletion + stats.reclaimed_by_compaction:,} bytes freed so far",
        )
        indexes = range(len(settings.index_directories))
        before = bookie.index_bytes
        collection.compact_indexes(indexes)
        _run_until(
            lambda: not any(map(collection.is_compacting_index, indexes)),
            posted,
            lambda: f"the location index has {bookie.index_bytes:,} bytes, {before:,} before",
        )
        index_text = f"location index {bookie.index_bytes} bytes, {before} before"
    finally:
        bookie.close()
    print(
        f"{stats.reclaimed_by_deletion} bytes freed with dead logs, {stats.reclaimed_by_compaction} by compaction;"
        f" {bookie.state.storages.entry_log_count()} logs left; {index_text}"
    )
    return 0


def _run_until(
    done: Callable[[], bool], posted: SimpleQueue[Callable[[], None]], progress: Callable[[], str]
) -> None:
    """Runs the callbacks that the bookie's threads post, as its event loop would; prints progress each second."""
    said = time.monotonic()
    while not done():
        with contextlib.suppress(Empty):
            posted.get(timeout=0.05)()
        if time.monotonic() - said >= 1:
            said = time.monotonic()
            _say(f"compact: {progress()}")


def _compact_online(url: str, *, minor: bool) -> int:
    body = json.dumps({"forceMajor": not minor, "forceMinor": minor}).encode()
    said = _ask(f"{url}/api/v1/bookie/gc", body)
    _say(str(said))
    _wait_online(f"{url}/api/v1/bookie/gc")
    index = f"{url}/api/v1/bookie/entry_location_compact"
    _say(str(_ask(index, b'{"entryLocationRocksDBCompact": true}')))
    _wait_online(index)
    print(json.dumps(_ask(f"{url}/api/v1/bookie/gc_details")))
    return 0


def _wait_online(url: str) -> None:
    """Polls `url` until no work there is reported as running."""
    before = time.monotonic()
    # Both routes answer objects in which running work is true or "true", under different names.
    while "true" in json.dumps(_ask(url)).lower():
        time.sleep(_POLL_S)
        _say(f"compact: at work for {time.monotonic() - before:.0f} s")


def _ask(url: str, body: bytes | None = None) -> object:
    request = urllib.request.Request(url, data=body, method="GET" if body is None else "PUT")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: object = json.loads(answer.read())
            return found
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise CommandError(f"{url}: {error}") from None
