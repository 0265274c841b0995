"""`python -m bookie_stub`: runs a bookie as a process of its own.

SIGTERM or SIGINT stops it cleanly (sync, checkpoint, exit 0); a second signal exits at once (130). A bad setting
prints one line and exits with 2; a data directory that cannot be opened logs one line and exits with 1. `magnetar
bookie` calls `main` too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bookie_stub.base.disk_reserve import one_per_disk
from bookie_stub.base.errors import BookieError
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.rules import load_bookie_settings
from bookie_stub.config.settings import BookieSettings
from bookie_stub.config.tls import tls_context
from bookie_stub.wire.server import BookieServer
from foundation.settings.errors import SettingsError
from foundation.settings.load import refuse_unknown, unknown_allowed, with_data
from foundation.settings.settings import Note, Settings
from foundation.settings.start_errors import check_ready_file, start_error

if TYPE_CHECKING:
    from ssl import SSLContext

    from bookie_stub.cluster.registration import Registration

log = logging.getLogger("bookie_stub")

SWITCH_INTERVAL_S = 0.001
"""Longest wait of the loop for the interpreter.

Another thread, such as a checkpoint, gives it back after this time. Python's default is 0.005."""


class Companion(Protocol):
    """A service in the bookie's process that starts after the bookie and ends before it."""

    def start(self) -> None:
        """Begins in the background; errors are the companion's own to log."""
        ...

    async def close(self) -> None:
        """Ends the service."""
        ...

    def metrics(self) -> bytes:
        """Returns further lines for the bookie's scrape."""
        ...


MakeCompanion = Callable[[Settings], Companion | None]
"""Makes the companion that the settings ask for, None when they ask for none."""


def main(
    argv: list[str] | None = None,
    make_companion: MakeCompanion | None = None,
    refuse: Callable[[Sequence[Note]], None] = refuse_unknown,
) -> int:
    """Runs a bookie until a signal stops it; returns the exit code.

    `make_companion` is called before the bookie opens, and may raise SettingsError, as `refuse` does for unknown keys.
    """
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=_log_level(), format=_LOG_FORMAT)
    try:
        loaded = _load(arguments, refuse)
        settings = BookieSettings.of(loaded)
        tls = tls_context(settings.tls)
        companion = None if make_companion is None else make_companion(loaded)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    for note in loaded.notes:
        log.log(logging.WARNING if note.level == "warning" else logging.INFO, note.text)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        _runner()(_run(settings, tls, arguments.ready_file, companion))
    except (BookieError, OSError) as error:
        log.error("cannot start: %s", start_error(error, loaded))
        return 1
    return 0


_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def _log_level() -> int:
    """Reads `PULSAR_LOG_LEVEL` (trace … error, off; default info), as Pulsar's scripts do."""
    levels = {**logging.getLevelNamesMapping(), "TRACE": logging.DEBUG, "OFF": logging.CRITICAL + 1}
    return levels.get(os.environ.get("PULSAR_LOG_LEVEL", "info").strip().upper(), logging.INFO)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bookie_stub", description="A bookie with BookKeeper's files and wire."
    )
    parser.add_argument("--conf", type=Path, help="bookkeeper.conf (default: the built-in defaults)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key")
    parser.add_argument("--data", metavar="DIR", help="keep everything below DIR")
    parser.add_argument("--ready-file", type=Path, metavar="F", help="write addresses as JSON when ready")
    parser.add_argument("--allow-unknown-keys", action="store_true", help="start in spite of unknown keys")
    return parser.parse_args(words)


def _load(arguments: argparse.Namespace, refuse: Callable[[Sequence[Note]], None]) -> Settings:
    overrides = with_data(arguments.set, arguments.data)
    if arguments.ready_file is not None:
        check_ready_file(arguments.ready_file)
    settings = load_bookie_settings(arguments.conf, environ=os.environ, overrides=overrides)
    if not arguments.allow_unknown_keys:
        refuse(settings.notes)
    elif allowed := unknown_allowed(settings.notes):
        print(allowed, file=sys.stderr)
    return settings


def _runner() -> Callable[[Coroutine[None, None, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _run(
    settings: BookieSettings, tls: SSLContext | None, ready_file: Path | None, companion: Companion | None
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop)
    registration = await asyncio.to_thread(_registration, settings)
    # After the look for ZooKeeper, since a start without it leaves no folder; before the databases of the indexes, which
    # cannot be opened on a disk without a free byte.
    reserves = one_per_disk((*settings.index_directories, *settings.journal_directories))
    for reserve in reserves:
        reserve.start()
    try:
        await _serve(settings, registration, tls, ready_file, companion, stop)
    finally:
        for reserve in reserves:
            reserve.close()


async def _serve(
    settings: BookieSettings,
    registration: Registration | None,
    tls: SSLContext | None,
    ready_file: Path | None,
    companion: Companion | None,
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    try:
        metadata = None if registration is None else registration.ledgers()
        bookie = Bookie.open(
            settings,
            loop.call_soon_threadsafe,
            cluster=registration,
            metadata=metadata,
            # The journal uses no time.
            at_end_of_turn=lambda callback: loop.call_soon(callback, 0),
        )
    except BaseException:
        await asyncio.to_thread(_leave, registration)
        raise
    server = BookieServer(bookie, tls=tls)
    try:
        await server.start()
        if registration is not None:
            # Any free port is known too late: the HTTP server starts after the bookie serves.
            http_port = settings.http_port or None
            announcer = _Announcer(registration, settings.advertised_address, server.port, http_port)
            await announcer.tell(bookie.availability.read_only)
            bookie.upkeep.when_read_only_changes = announcer.changed
        # Imported only now, because aiohttp takes longer than all of the start above.
        from bookie_stub.http.server import HttpServer

        http = HttpServer(bookie, server, bytes if companion is None else companion.metrics)
        await http.start(settings.host, settings.http_port)
        if companion is not None:
            companion.start()
        log.info("bookie is ready on %s:%d, metrics on port %d", settings.host, server.port, http.port)
        if ready_file is not None:
            _write_ready(ready_file, settings.host, server.port, http.port)
        await stop.wait()
        log.info("stopping")
        if companion is not None:
            await companion.close()
        await http.close()
    finally:
        # First, so that no client chooses a bookie that is about to end.
        await asyncio.to_thread(_leave, registration)
        await server.close()
    log.info("stopped")


class _Announcer:
    """Tells the cluster when the bookie becomes read-only or writable. One change waits for the other."""

    def __init__(self, registration: Registration, host: str, port: int, http_port: int | None) -> None:
        self._registration = registration
        self._addresses = (host, port, http_port)
        self._one_at_a_time = asyncio.Lock()
        # asyncio keeps weak references to tasks only, so a task without this one could disappear.
        self._telling: set[asyncio.Task[None]] = set()

    async def tell(self, read_only: bool) -> None:
        """Registers the bookie in its present state. Raises BookieError when ZooKeeper is unreachable."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._registration.announce, *self._addresses, read_only=read_only)

    def changed(self, read_only: bool) -> None:
        """Called by the upkeep in the loop. Tells the cluster in the background."""
        task = asyncio.get_running_loop().create_task(self._tell_or_log(read_only))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_or_log(self, read_only: bool) -> None:
        try:
            await self.tell(read_only)
        except BookieError as error:  # The next connection to ZooKeeper tells it again.
            log.error("the cluster does not know yet that read-only is %s: %s", read_only, error)


def _registration(settings: BookieSettings) -> Registration | None:
    if settings.metadata is None:
        return None
    # Imported here, so that a bookie without a metadata store does not load kazoo.
    from bookie_stub.cluster.registration import Registration

    return Registration.connect(settings.metadata, settings.bookie_id, settings.metadata_timeout_s)


def _leave(registration: Registration | None) -> None:
    if registration is not None:
        registration.close()


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        # The first signal already asked for an orderly stop; a sync that hangs on a broken disk would never let it end.
        os._exit(130)
    stop.set()


def _write_ready(path: Path, host: str, port: int, http_port: int) -> None:
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
    content = {"bookie": f"{shown}:{port}", "http": f"http://{shown}:{http_port}", "pid": os.getpid()}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
