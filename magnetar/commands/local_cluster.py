"""`python -m magnetar.commands.local_cluster`: runs three bookies and three brokers on one metadata store until Ctrl-C.

Python alone is enough: the store is a file that `magnetar metadata serve` shares. `--zookeeper` names a ZooKeeper in its
place, where the bookies register too. Each process has its conf file, its data and its log in one folder, and finds them
there at the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from magnetar.clients.client import CommandError, fail, say
from magnetar.process.shared_options import CommandParser

COUNT: Final = 3
"""Bookies, and brokers."""
STOP_S: Final = 60.0
"""Longest wait for the stop of processes of one kind; those that are left are killed."""
_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.2
_BOOKIE_PORT: Final = 3181
_BOOKIE_HTTP_PORT: Final = 8001
_BROKER_PORT: Final = 6650
_ADMIN_PORT: Final = 8080


class LocalProcess:
    """One process of the cluster, which may be started several times."""

    def __init__(
        self, folder: Path, name: str, words: Sequence[str], said: bytes, ports: Sequence[int] = ()
    ) -> None:
        """`words` are those after `magnetar`, `said` what it prints once it serves, `ports` those that it listens at."""
        self.name = name
        """Such as `broker-1`."""
        self.ports = tuple(ports)
        """Of the loopback."""
        self.log = folder / f"{name}.log"
        """Its output, over all starts."""
        self._words = words
        self._said = said
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last; 0 before."""
        return 0 if self._process is None else self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status of a process that has ended, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def spawn(self) -> None:
        """Starts the process. Ctrl-C reaches this command alone, which then ends all in their order."""
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "magnetar", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Returns once it serves. Raises CommandError with its last line where it ends before."""
        while self._said not in (printed := self.log.read_bytes()[self._log_begin :]):
            if self.ended is not None:
                last = (printed.decode(errors="replace").splitlines() or ["it printed nothing"])[-1]
                raise CommandError(f"{self.name} does not start, see {self.log}: {last.strip()}")
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Asks it to stop."""
        if self._process is not None and self.ended is None:
            self._process.terminate()

    def wait_stopped(self, until_s: float) -> None:
        """Returns once it has ended; kills it at `until_s`, a moment of the monotonic clock."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"{self.name} does not stop; it is killed")
            self._process.kill()
            self._process.wait()


class LocalCluster:
    """The processes, by kind in the order of their start."""

    def __init__(self, folder: Path, zookeeper: str, offset: int) -> None:
        """`zookeeper`: `host:port` with a chroot or without; empty for a served file. `offset`: added to all ports."""
        self._folder = folder
        socket_path = (folder / "metadata.sock").absolute()
        url = f"zk:{zookeeper}" if zookeeper else f"unix:{socket_path}"
        self.store: list[LocalProcess] = []
        """The server of the metadata store; none with a ZooKeeper."""
        if not zookeeper:
            words = ("metadata", "serve", str(folder / "metadata"), "--socket", str(socket_path))
            self.store.append(LocalProcess(folder, "metadata", words, b"metadataStoreUrl="))
        self.bookies = [self._bookie(number, offset, zookeeper) for number in range(COUNT)]
        """They keep the entries, each entry two of them."""
        known = ",".join(f"{_HOST}:{bookie.ports[0]}" for bookie in self.bookies)
        self.brokers = [
            self._broker(number, offset, url, "registered" if zookeeper else known) for number in range(COUNT)
        ]
        """They serve clients."""

    def _bookie(self, number: int, offset: int, zookeeper: str) -> LocalProcess:
        ports = (_BOOKIE_PORT + offset + number, _BOOKIE_HTTP_PORT + offset + number)
        settings = {
            "bookiePort": str(ports[0]),
            "prometheusStatsHttpPort": str(ports[1]),
            "bindAddress": _HOST,
            "advertisedAddress": _HOST,
            "bookieId": f"{_HOST}:{ports[0]}",
        }
        if zookeeper:
            settings["metadataServiceUri"] = f"zk+hierarchical://{zookeeper}/ledgers"
        return self._member(f"bookie-{number + 1}", "bookie", settings, b"bookie is ready", ports)

    def _broker(self, number: int, offset: int, url: str, bookies: str) -> LocalProcess:
        ports = (_BROKER_PORT + offset + number, _ADMIN_PORT + offset + number)
        settings = {
            "clusterName": "local",
            "metadataStoreUrl": url,
            "metadataStoreSessionTimeoutMillis": "6000",
            "bookieAddress": bookies,
            "managedLedgerDefaultEnsembleSize": "2",
            "managedLedgerDefaultWriteQuorum": "2",
            "managedLedgerDefaultAckQuorum": "2",
            "transactionCoordinatorEnabled": "true",
            "bindAddress": _HOST,
            "advertisedAddress": _HOST,
            "brokerServicePort": str(ports[0]),
            "webServicePort": str(ports[1]),
        }
        return self._member(f"broker-{number + 1}", "broker", settings, b"messaging service is ready", ports)

    def _member(
        self, name: str, command: str, settings: Mapping[str, str], said: bytes, ports: Sequence[int]
    ) -> LocalProcess:
        conf = self._folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        words = (command, "-c", str(conf), "--data", str(self._folder / name))
        return LocalProcess(self._folder, name, words, said, ports)

    @property
    def members(self) -> list[LocalProcess]:
        """All processes, in the order of their start."""
        return [*self.store, *self.bookies, *self.brokers]

    def start(self, members: Sequence[LocalProcess]) -> None:
        """Starts those of `members`, kind by kind. Raises CommandError."""
        _check_ports(members)
        for kind in (self.store, self.bookies, self.brokers):
            due = [member for member in kind if member in members]
            for member in due:
                member.spawn()
            for member in due:
                member.wait_ready()

    def stop(self) -> None:
        """Stops brokers before the bookies and the store that they need."""
        for kind in (self.brokers, self.bookies, self.store):
            for member in kind:
                member.stop()
            until_s = time.monotonic() + STOP_S
            for member in kind:
                member.wait_stopped(until_s)


def main(argv: list[str] | None = None) -> int:
    """Runs the cluster. Returns 0 after Ctrl-C, or 1 after one line on stderr."""
    arguments = _parser().parse_args(argv)
    folder: Path = arguments.data
    try:
        with _interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            _run(folder, arguments.zookeeper, arguments.port_offset)
    except KeyboardInterrupt:
        return 0
    except (CommandError, OSError) as error:
        return fail("cluster", CommandError(str(error)))
    return 0


def _run(folder: Path, zookeeper: str, offset: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _check_same_store(folder, zookeeper)
    cluster = LocalCluster(folder, zookeeper, offset)
    try:
        say(f"starting {len(cluster.members)} processes; their data and logs are in {folder}")
        cluster.start(cluster.members)
        print(_what_next(cluster, folder), flush=True)
        _watch(cluster)
    finally:
        say("stopping brokers, bookies and the metadata store")
        cluster.stop()


def _check_same_store(folder: Path, zookeeper: str) -> None:
    """Raises CommandError if the folder has bookies of another store, whose ledgers this one does not know."""
    note = folder / "store"
    store = zookeeper or "served file"
    before = note.read_text(encoding="utf-8") if note.exists() else store
    if before != store:
        raise CommandError(
            f"{folder} has the data of a cluster on another store ({before}); name another folder with --data"
        )
    note.write_text(store, encoding="utf-8")


def _check_ports(members: Sequence[LocalProcess]) -> None:
    for name, port in ((member.name, port) for member in members for port in member.ports):
        with socket.socket() as probe:
            # As servers do: a port whose last connections have just ended is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                remedy = "--port-offset 1000 takes others for all processes"
                raise CommandError(f"port {port} of {name} is in use; {remedy}") from None


def _watch(cluster: LocalCluster) -> None:
    """Tells of processes that end, and starts them again when the user presses Enter; returns never."""
    told: set[LocalProcess] = set()
    source = [sys.stdin] if sys.stdin is not None and not sys.stdin.closed else []
    while True:
        ready, _, _ = select.select(source, [], [], _LOOK_S)
        if ready and not sys.stdin.readline():
            source = []  # Its end has come; it would be ready for ever.
            ready = []
        for member in cluster.members:
            if member.ended is not None and member not in told:
                told.add(member)
                say(f"{member.name} has ended with status {member.ended}; press Enter to start it again")
        if ready and told:
            cluster.start(list(told))
            for member in sorted(told, key=lambda one: one.name):
                say(f"{member.name} is back, process {member.pid}")
            told.clear()


def _what_next(cluster: LocalCluster, folder: Path) -> str:
    """Returns what a newcomer may type, with this cluster's addresses."""
    name = ".venv/bin/magnetar"
    brokers = cluster.brokers
    url = "pulsar://" + ",".join(f"{_HOST}:{broker.ports[0]}" for broker in brokers)
    admin = f"--admin-url http://{_HOST}:{brokers[0].ports[1]}"
    lines = [
        "",
        *(
            f"{broker.name}  process {broker.pid}  pulsar://{_HOST}:{broker.ports[0]}  console http://{_HOST}:{broker.ports[1]}/"
            for broker in brokers
        ),
        "",
        "In a second terminal:",
        "",
        "  # who is there, and who chooses owners",
        f"  {name} admin {admin} brokers list local",
        f"  {name} admin {admin} brokers leader-broker",
        "  # a topic with 12 partitions, spread over the brokers; any broker tells their owners",
        f"  {name} admin {admin} topics create-partitioned-topic demo -p 12",
        f"  {name} admin {admin} topics partitioned-lookup demo",
        "  # clients name all brokers; each of these runs until Ctrl-C",
        f"  {name} perf consume -u {url} -ss s demo",
        f"  {name} perf produce -u {url} -r 200 demo",
        "  # end one broker without a warning: the others take its topics within some seconds, and nothing is lost",
        f"  kill -9 {brokers[-1].pid}",
        "",
        f"Enter starts again what has ended. Ctrl-C ends all; the data stay in {folder}.",
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Lets these signals end the block as Ctrl-C does: no process is left behind a terminal that was closed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: list[tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]] = [
        (one, signal.signal(one, interrupt)) for one in signals
    ]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "python -m magnetar.commands.local_cluster",
        description="Run a cluster of three bookies and three brokers as processes of this machine, until Ctrl-C.",
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        default=Path("data/cluster"),
        metavar="DIR",
        help="folder of everything that is kept",
    )
    add(
        "--zookeeper",
        default="",
        metavar="HOST:PORT[/CHROOT]",
        help="a ZooKeeper that runs already, in place of a served file",
    )
    add("--port-offset", type=int, default=0, metavar="N", help="added to every port")
    return parser


if __name__ == "__main__":
    sys.exit(main())
