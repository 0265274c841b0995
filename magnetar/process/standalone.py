"""Runs `magnetar standalone` and `magnetar broker`: joins broker, ledgers and metadata until a signal stops them.

Only this module knows both the broker and the embedded bookie. The broker reaches the bookie through the same ledger
client interface as a bookie on the network. The first SIGTERM or SIGINT drains and exits with 0; a second one exits
at once. The order of a start: settings, loop, bookie (in a thread) beside metadata store, bookies, broker, data port,
ready file, metrics and console. The admin server starts at its first connection.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bookie_stub.base.disk_reserve import DiskReserve
from bookie_stub.base.errors import BookieError
from broker.config import load_broker_settings
from broker.config.rules import EMBEDDED
from broker.net.wire_fields import fields_without_effect
from broker.recorder.errors import RecordError
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.errors import MetadataError
from foundation.settings.errors import SettingsError
from foundation.settings.load import FromOption, unknown_allowed, with_data
from foundation.settings.settings import Note, Settings
from foundation.settings.start_errors import check_data_folder, check_ready_file, start_error
from magnetar import __version__
from magnetar.process.config_files import default_file, refuse_unknown_keys
from magnetar.process.greeting import greeting
from magnetar.process.open_metadata import open_metadata
from magnetar.process.options import BrokerOptions
from magnetar.process.process_settings import load_standalone_settings

if TYPE_CHECKING:
    from bookie_stub.compose.bookie import Bookie
    from bookkeeper.client.ledger_client import LedgerClient
    from bookkeeper.ensembles.bookies import Bookies
    from bookkeeper.metadata.metadata_store import MetadataStore
    from broker.compose.broker_service import BrokerService
    from broker.faults.controls import TestControls
    from broker.security.authentication.authenticator import Authenticator
    from broker.service.topics.topic_ownership import Addresses

log = logging.getLogger("magnetar")

READY = "messaging service is ready"
"""Text in Pulsar's log that scripts and test containers wait for."""

NAMESPACE_READY = "Successfully updated the policies on namespace public/default"
"""Text in the log of Pulsar's standalone that the Pulsar module of testcontainers for Go waits for."""

SWITCH_INTERVAL_S = 0.0005
"""Longest wait of the journal's thread for the interpreter; Python's default of 5 ms is as long as an fsync."""

EMBEDDED_ADDRESS = "127.0.0.1:3181"
"""Stands in ledger metadata for the embedded bookie, which has no address; BookKeeper's default port."""

GC_YOUNG_OBJECTS = 5_000
"""Objects made between two passes of Python's garbage collector; its default is 700.

A pass holds the loop, and its time follows the number of objects. While thousands of topics are opened and closed nearly
all of them stay, and each costs a pass up to 1 µs: 50,000 held the loop for 55 ms, and with processors short for 195. More
objects would spare nothing, because each one is visited as often in all.
"""
GC_MIDDLE_PASSES = 0
"""Every second pass is one of the middle generation and looks at up to 10,000 objects, twice the young ones. With 1 it would
be every third, of 15,000 objects: 17 ms while thousands of topics are opened and closed, and more visits in all."""
GC_FULL_PASSES = 20_000
"""Passes of the middle generation between two full ones, which take 150 to 650 ns for each object that is not frozen. What
comes and goes with topics and clients holds no cycles, so they would find little."""


class _ToldToStop(Exception):
    """A signal came before the broker was ready, so there is nothing to drain."""


class ProcessSettings(NamedTuple):
    """The settings of the whole process, read once."""

    broker: Settings
    """The broker's side."""
    bookie: Settings | None
    """The embedded bookie's side; None for the role `broker`."""
    notes: tuple[Note, ...]
    """Warnings about the settings, for the log."""
    memory: bool
    """True when nothing is kept on disk."""
    authenticator: Authenticator | None
    """Finds the roles of clients; None without authentication."""
    controls: TestControls | None
    """The clock and the faults of `--test-faults`."""


def run(options: BrokerOptions) -> int:
    """Runs the process. Returns 0 after a clean stop, 1 when it could not start, 2 for a bad setting."""
    try:
        if options.until_eof:
            _check_standard_input()
        settings = load(options)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    for note in settings.notes:
        log.log(logging.WARNING if note.level == "warning" else logging.INFO, note.text)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        _run_loop(_serve(settings, options))
    except _ToldToStop:
        log.info("stopped before it was ready")
    except SettingsError as error:  # A stored change of a setting.
        print(error, file=sys.stderr)
        return 2
    except (OSError, BookieError, MetadataError, RecordError) as error:
        tables = [one for one in (settings.broker, settings.bookie) if one is not None]
        log.error("cannot start: %s", start_error(error, *tables))
        return 1
    return 0


def load(options: BrokerOptions) -> ProcessSettings:
    """Reads the settings, and empties the data folder if that was asked for.

    Raises SettingsError, also for files of keys and passwords that cannot be used.
    """
    path = options.config_path or default_file(options.role, os.environ)
    overrides = with_data(options.overrides, options.data)
    if options.memory:
        overrides.append(FromOption("--memory", "magnetarInMemory", "true"))
    if options.ready_file is not None:
        check_ready_file(options.ready_file)
    bookie: Settings | None = None
    if options.role == "standalone":
        both = load_standalone_settings(
            path, environ=os.environ, overrides=overrides, profile=options.profile
        )
        broker, bookie, notes = both.broker, both.bookie, both.notes
    else:
        broker = load_broker_settings(path, environ=os.environ, overrides=overrides, profile=options.profile)
        notes = tuple(broker.notes)
        if EMBEDDED in broker.list("bookieAddress") and not broker.bool("magnetarInMemory"):
            raise SettingsError(
                f"{broker.origin('bookieAddress')}: bookieAddress={EMBEDDED}: a broker on its own needs host:port of a"
                " bookie; `magnetar standalone` has one inside"
            )
    if not options.allow_unknown_keys:
        refuse_unknown_keys(notes)
    elif allowed := unknown_allowed(notes):
        print(allowed, file=sys.stderr)
    controls = None
    if options.test_faults:
        # Imported for tests alone: an ordinary start must not pay for it.
        from broker.faults.controls import TestControls

        controls = TestControls()
    authenticator = None
    if broker.bool("authenticationEnabled"):
        # Imported for this setting alone: a start without authentication must not pay for it.
        from broker.security.authentication.make import make_authenticator

        authenticator = make_authenticator(
            broker, clock.wall_ms if controls is None else controls.held.wall_ms
        )
    if options.wipe_data:
        # Not before all settings are accepted: a typing error must not cost the data.
        data = Path(broker.str("magnetarDataDirectory")).absolute()
        if data.is_dir():
            shutil.rmtree(data)
    if not broker.bool("magnetarInMemory"):
        check_data_folder(broker)
    return ProcessSettings(broker, bookie, notes, broker.bool("magnetarInMemory"), authenticator, controls)


def _run_loop(main: Coroutine[object, object, None]) -> None:
    """Runs on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(settings: ProcessSettings, options: BrokerOptions) -> None:
    stop = _stop_on_signals()
    if options.until_eof:
        await _stop_at_eof(stop)
    service = await _start(settings, stop)
    service.stop_process = stop.set
    try:
        _announce(service.addresses, options.ready_file)
        await service.start_admin()
        # Modules and rooms live as long as the process: frozen, no later pass of the collector walks over them. Last,
        # because metrics and console belong to them, and clients need not wait for the pass.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_YOUNG_OBJECTS, GC_MIDDLE_PASSES, GC_FULL_PASSES)
        if options.role == "standalone":
            log.info(NAMESPACE_READY)
        await stop.wait()
        log.info("stopping: finishing publishes and writing cursors")
    finally:
        await _stop(service, service.settings.int("brokerShutdownTimeoutMs") / 1000)


async def _stop(service: BrokerService, seconds_max: float) -> None:
    try:
        await asyncio.wait_for(service.stop(), seconds_max or None)
    except TimeoutError:
        log.error(
            "not stopped within brokerShutdownTimeoutMs=%d; the next start recovers the ledgers that are still open",
            seconds_max * 1000,
        )


async def _start(settings: ProcessSettings, stop: asyncio.Event) -> BrokerService:
    """Opens everything up to the data port. The bookie replays its journal while the broker's rooms are imported.

    When the start fails, the opened parts are closed again, so that the next start has nothing to recover.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as opened:
        if not settings.memory:
            # Before bookie and metadata store, which cannot be opened on a disk without a free byte.
            reserve = DiskReserve(Path(settings.broker.str("magnetarDataDirectory")))
            reserve.start()
            opened.callback(reserve.close)
        now_ns = clock.monotonic_ns if settings.controls is None else settings.controls.held.monotonic_ns
        turn = Turn(loop.call_soon, now_ns)
        with ThreadPoolExecutor(1) as opener:
            bookie = _open_bookie(settings, opener, loop.call_soon_threadsafe, turn.commit)
            # Imported only now, beside the replay in the other thread: both take a noticeable part of the start.
            from bookkeeper.ensembles.ledger_ids import LedgerIds, LedgerIdsAbove, LedgerIdsUnused
            from bookkeeper.ensembles.ledgers import Ledgers
            from broker.compose.broker_service import BrokerService
            from broker.compose.room_settings import ensemble_settings

            metadata, ids, start_name = await open_metadata(settings.broker)
            if settings.controls is not None:
                metadata = settings.controls.faulty_metadata(metadata)
            opened.push_async_callback(metadata.close)
            bookies = await _bookies(settings, bookie, turn, metadata, stop)
            ledgers = Ledgers(
                metadata,
                bookies,
                ensemble_settings(settings.broker, alone=bookies.sole is not None),
                call_soon=loop.call_soon,
                call_later=loop.call_later,
                creator_token=random.getrandbits(63),
            )
            opened.push_async_callback(ledgers.close)
            if bookie is not None:
                # The metadata store may be older than the bookie's files, for example restored from a backup.
                # Without the bookie's highest id, a new ledger could get the id of one that has entries.
                ids = LedgerIdsAbove(ids or LedgerIds(metadata), bookie.result().highest_ledger_id)
            elif ids is None and not settings.memory:
                ids = LedgerIdsUnused(LedgerIds(metadata), bookies)
        service = BrokerService(
            settings.broker,
            metadata=metadata,
            ledgers=ledgers,
            turn=turn,
            version=__version__,
            ids=ids,
            start_name=start_name,
            authenticator=settings.authenticator,
            controls=settings.controls,
        )
        await service.start()
        opened.pop_all()
    return service


def _open_bookie(
    settings: ProcessSettings,
    opener: ThreadPoolExecutor,
    post: Callable[[Callable[[], None]], object],
    at_end_of_turn: Callable[[Callable[[int], None]], None],
) -> Future[Bookie] | None:
    if settings.memory or settings.bookie is None or EMBEDDED not in settings.broker.list("bookieAddress"):
        return None
    bookie_settings = settings.bookie

    def open_bookie() -> Bookie:
        from bookie_stub.compose.bookie import Bookie
        from bookie_stub.config.settings import BookieSettings

        return Bookie.open(BookieSettings.of(bookie_settings), post, at_end_of_turn=at_end_of_turn)

    return opener.submit(open_bookie)


async def _bookies(
    settings: ProcessSettings,
    bookie: Future[Bookie] | None,
    turn: Turn,
    metadata: MetadataStore,
    stop: asyncio.Event,
) -> Bookies:
    from bookkeeper.ensembles.bookies import OneBookie

    if settings.memory:
        from bookkeeper.client.memory import MemoryLedgerClient

        memory = MemoryLedgerClient(asyncio.get_running_loop().call_soon)
        return OneBookie(EMBEDDED_ADDRESS, _with_faults(memory, settings.controls))
    if bookie is not None:
        from bookkeeper.client.embedded import EmbeddedLedgerClient

        opened: Bookie = await asyncio.wrap_future(bookie)
        return OneBookie(EMBEDDED_ADDRESS, _with_faults(EmbeddedLedgerClient(opened), settings.controls))
    from magnetar.process.remote_bookies import connect_to_bookies

    # Wait for the signal too: a bookie that never answers must not make SIGTERM wait.
    connecting = asyncio.create_task(connect_to_bookies(settings.broker, turn, metadata))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        raise _ToldToStop
    stopped.cancel()
    return connecting.result()


def _with_faults(bookie: LedgerClient, controls: TestControls | None) -> LedgerClient:
    return bookie if controls is None else controls.faulty_bookie(bookie)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


class _AtEof(asyncio.Protocol):
    """Stops the broker at the end of a pipe; bytes in it mean nothing."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def eof_received(self) -> None:
        """The writing side has closed."""
        self._stop.set()

    def connection_lost(self, error: Exception | None) -> None:
        """The pipe has failed."""
        self._stop.set()


def _check_standard_input() -> None:
    """Raises SettingsError unless standard input is a pipe or a socket; of a file libuv would end the process."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        mode = 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise SettingsError(
            "--until-eof: standard input is no pipe; start the broker with one, and keep its other end open"
        )


async def _stop_at_eof(stop: asyncio.Event) -> None:
    await asyncio.get_running_loop().connect_read_pipe(lambda: _AtEof(stop), sys.stdin)


def _announce(addresses: Addresses, ready_file: Path | None) -> None:
    """Logs ignored wire fields and the addresses, greets a user at a terminal, and writes the ready file."""
    # No setting asks for these fields, so only the log can name them to an operator.
    log.info("fields of client commands without effect here: %s", ", ".join(fields_without_effect()))
    urls = (addresses.service_url, addresses.service_url_tls, addresses.admin_url, addresses.admin_url_tls)
    log.info("%s: %s", READY, " ".join(url for url in urls if url))
    if sys.stdout.isatty() or "MAKELEVEL" in os.environ:  # Also under `make run`, whose output may be a pipe.
        url = addresses.service_url or addresses.service_url_tls
        print(greeting(url, addresses.admin_url or addresses.admin_url_tls), flush=True)
    if ready_file is None:
        return
    found = {
        "pulsar": addresses.service_url,
        "pulsar+ssl": addresses.service_url_tls,
        "admin": addresses.admin_url,
        "admin+ssl": addresses.admin_url_tls,
    }
    text = json.dumps({**{name: url for name, url in found.items() if url}, "pid": os.getpid()})
    if ready_file.is_fifo():
        # Written as it is: a rename would put a file into its place, and the reader at the other end would wait for ever.
        ready_file.write_text(text + "\n")
        return
    # Renamed when complete, so a script that finds the file can read it at once.
    part = ready_file.with_name(ready_file.name + ".part")
    part.write_text(text + "\n")
    part.replace(ready_file)
