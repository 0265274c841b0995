"""`magnetar bookie autorecovery`, `decommission`, `recover` and the others of `RECOVERY`: copies of lost bookies' entries.

They find the cluster by a bookie's settings (`metadataServiceUri` in `--conf`, or `--set`). Names and meaning of the
commands are those of BookKeeper's shell. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser, add_process_options, add_settings_options

if TYPE_CHECKING:
    from bookie_stub.config.settings import BookieSettings
    from foundation.settings.settings import Settings
    from magnetar.process.recovery_settings import AutoRecoverySettings
    from magnetar.process.rereplication import ClusterConnections

log = logging.getLogger("magnetar")

_POLL_S = 1.0
DELAY_MAX_S = 2**31 - 1
"""Longest lostBookieRecoveryDelay; BookKeeper reads it into Java's int."""


def main(argv: list[str]) -> int:
    """Runs the command that the first word names; returns the exit code."""
    arguments = _parser().parse_args(argv)
    from foundation.model.errors import BrokerError
    from foundation.settings.errors import SettingsError
    from magnetar.process import logs

    run: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = arguments.run
    try:
        with logs.running(getattr(arguments, "log_format", "auto")):
            if arguments.action != "autorecovery" and logs.LEVEL_VARIABLE not in os.environ:
                # Else six lines about connections stand around the answer.
                logging.getLogger().setLevel(logging.WARNING)
            return asyncio.run(run(arguments))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except (CommandError, BrokerError, OSError) as error:
        return fail(f"bookie {argv[0]}", error)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar bookie")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    serve = actions.add_parser("autorecovery", help="run auditor and replication worker in the foreground")
    serve.set_defaults(run=_autorecovery)
    add_process_options(serve)

    decommission = actions.add_parser(
        "decommission", help="copy everything of a stopped bookie to others, and wait"
    )
    decommission.add_argument("--bookie-id", metavar="ID", help="the bookie (default: the settings' own)")
    decommission.add_argument(
        "--keep-cookie", action="store_true", help="leave its cookie, so that it may register again"
    )
    decommission.set_defaults(run=_decommission)

    listed = actions.add_parser("listunderreplicated", help="print marked ledgers, one JSON object a line")
    listed.add_argument("--missing-replica", metavar="ID", help="only those that lost this bookie")
    listed.set_defaults(run=_list)

    recover = actions.add_parser("recover", help="mark the ledgers of lost bookies, or one ledger, now")
    recover.add_argument("bookies", nargs="*", metavar="ID", help="lost bookies (default: all that are lost)")
    recover.add_argument("--ledger", type=int, metavar="ID", help="only this ledger")
    recover.add_argument("--wait", action="store_true", help="wait until the marks are gone")
    recover.set_defaults(run=_recover)

    switch = actions.add_parser("autorecoverystatus", help="print or switch re-replication of the cluster")
    switch.add_argument("state", nargs="?", choices=("enable", "disable"), help="(prints it)")
    switch.set_defaults(run=_switch)

    delay = actions.add_parser(
        "lostbookierecoverydelay", help="print or change the cluster's wait for a lost bookie"
    )
    delay.add_argument("seconds", nargs="?", type=_seconds, metavar="SECONDS", help="(prints it)")
    delay.set_defaults(run=_delay)
    for action in (serve, decommission, listed, recover, switch, delay):
        add_settings_options(action, "--conf", "--config", conf_help="bookkeeper.conf")
    return parser


def _settings(arguments: argparse.Namespace) -> tuple[BookieSettings, AutoRecoverySettings]:
    from bookie_stub.config.rules import load_bookie_settings
    from bookie_stub.config.settings import BookieSettings
    from foundation.settings.load import with_data
    from magnetar.process.recovery_settings import AutoRecoverySettings

    overrides = with_data(arguments.set, arguments.data)
    settings: Settings = load_bookie_settings(arguments.conf, environ=os.environ, overrides=overrides)
    return BookieSettings.of(settings), AutoRecoverySettings.of(settings)


async def _autorecovery(arguments: argparse.Namespace) -> int:
    from bookkeeper.repair.http import MetricsServer
    from bookkeeper.repair.stats import RecoveryStats
    from magnetar.process.rereplication import running

    settings, recovery = _settings(arguments)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stats = RecoveryStats()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(settings, recovery, stats))
        metrics = MetricsServer(stats)
        await metrics.start(settings.host, settings.http_port)
        stack.push_async_callback(metrics.close)
        log.info("re-replication is ready, metrics on port %d", metrics.port)
        if arguments.ready_file is not None:
            _write_ready(arguments.ready_file, settings.host, metrics.port)
        await stop.wait()
        log.info("stopping")
    return 0


def _write_ready(path: Path, host: str, port: int) -> None:
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps({"http": f"http://{shown}:{port}", "pid": os.getpid()}) + "\n")
    temporary.replace(path)


@contextlib.asynccontextmanager
async def _cluster_of(settings: BookieSettings) -> AsyncIterator[ClusterConnections]:
    """Connects to a cluster that has bookies. Raises as `joined`, and CommandError for one that never had any.

    With a wrong path no ledger needs any bookie. Told so, an administrator deletes the data of one that ledgers need.
    """
    from magnetar.process.rereplication import joined

    async with joined(settings) as cluster:
        if not await cluster.cookies() and not await cluster.registered():
            raise CommandError(
                f"metadataServiceUri: no bookie is known at {settings.metadata}; name the path of the cluster"
            )
        yield cluster


async def _list(arguments: argparse.Namespace) -> int:
    settings, _ = _settings(arguments)
    async with _cluster_of(settings) as cluster:
        async for ledger_id in cluster.marks.ledgers():
            found = await cluster.marks.get(ledger_id)
            wanted = arguments.missing_replica
            if found is not None and (wanted is None or wanted in found.mark.replicas):
                row = {"ledgerId": ledger_id, "missingReplicas": found.mark.replicas}
                print(json.dumps({**row, "markedMs": found.mark.marked_ms}))
    return 0


async def _switch(arguments: argparse.Namespace) -> int:
    settings, _ = _settings(arguments)
    async with _cluster_of(settings) as cluster:
        await cluster.marks.prepare()
        if arguments.state is not None:
            await cluster.marks.set_enabled(arguments.state == "enable")
        print("enabled" if await cluster.marks.enabled() else "disabled")
    return 0


def _seconds(text: str) -> int:
    seconds = int(text)
    if not 0 <= seconds <= DELAY_MAX_S:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a whole number from 0 to {DELAY_MAX_S}")
    return seconds


async def _delay(arguments: argparse.Namespace) -> int:
    settings, recovery = _settings(arguments)
    async with _cluster_of(settings) as cluster:
        if arguments.seconds is not None:
            await cluster.marks.prepare()
            await cluster.marks.set_delay_s(arguments.seconds)
        print(await cluster.marks.delay_s(recovery.lost_bookie_delay_s))
    return 0


async def _recover(arguments: argparse.Namespace) -> int:
    settings, _ = _settings(arguments)
    async with _cluster_of(settings) as cluster:
        await cluster.marks.prepare()
        marked = await _mark(cluster, set(arguments.bookies), arguments.ledger)
        print(f"{len(marked)} ledgers are marked", file=sys.stderr)
        if arguments.wait:
            await _until_replicated(cluster, marked)
    return 0


async def _until_replicated(cluster: ClusterConnections, marked: list[int]) -> None:
    while left := [ledger_id for ledger_id in marked if await cluster.marks.get(ledger_id)]:
        print(f"{len(left)} ledgers still lack copies", file=sys.stderr, flush=True)
        await asyncio.sleep(_POLL_S)


async def _mark(cluster: ClusterConnections, lost: set[str], only: int | None) -> list[int]:
    """Marks the ledgers that need a bookie which is not registered, or one of `lost`; returns them."""
    from bookkeeper.ensembles.own_ledger import read_metadata
    from bookkeeper.repair.auditor import all_ledgers
    from bookkeeper.repair.fragments import bookies_needed
    from foundation.loop import clock

    registered = await cluster.registered()
    if running := lost & registered:
        raise CommandError(f"{', '.join(sorted(running))} is registered: stop it first")
    ledgers = [only] if only is not None else [each async for each in all_ledgers(cluster.store)]
    marked = []
    for ledger_id in ledgers:
        found = await read_metadata(cluster.store, ledger_id)
        if found is None:
            if only is not None:
                raise CommandError(f"ledger {ledger_id} does not exist")
            continue
        needed = bookies_needed(found[0])
        missing = sorted(needed & lost if lost else needed - registered)
        if missing or only is not None:
            await cluster.marks.add(ledger_id, missing, clock.wall_ms())
            marked.append(ledger_id)
    return marked


async def _decommission(arguments: argparse.Namespace) -> int:
    settings, _ = _settings(arguments)
    bookie_id: str = arguments.bookie_id or settings.bookie_id
    async with _cluster_of(settings) as cluster:
        await cluster.marks.prepare()
        if bookie_id in await cluster.registered():
            raise CommandError(f"{bookie_id} is registered: stop it first")
        if not await cluster.marks.enabled():
            raise CommandError("re-replication is switched off: `magnetar bookie autorecoverystatus enable`")
        is_known = bookie_id in await cluster.cookies()
        # Again until a search of all ledgers finds none: a writer may have chosen the bookie just before it stopped.
        while left := await _mark(cluster, {bookie_id}, None):
            is_known = True
            await _until_replicated(cluster, left)
        if not is_known:
            # Exit code 0 would let a script that has the id wrong delete the data of the right bookie.
            raise CommandError(
                f"{bookie_id} has no cookie, and no ledger needs it: it was given up before, or --bookie-id is wrong"
            )
        if not arguments.keep_cookie:
            await cluster.store.delete(f"/ledgers/cookies/{bookie_id}")
    print(f"no ledger needs {bookie_id}")
    return 0
