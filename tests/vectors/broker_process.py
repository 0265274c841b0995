"""A broker as a process of its own, for tests that talk to it over sockets only.

Law of the place: a test waits for the ready file or for the end of the process, never for an amount of time;
what the process printed is kept in a file, and shown where it ends too early.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.storages.places import CLUSTER, ports_for, settings_for
from tests.support.log_file import lines_in, tail_of, wait_for_lines

REPOSITORY: Final = Path(__file__).resolve().parents[2]
START_TIMEOUT_S: Final = 300.0
STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.01

PROFILES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    # Recorded with 1. A busy machine may stand still for a second, and miss an answer to a PING.
    "keepalive": {"keepAliveIntervalSeconds": "2"},
    "smallmsg": {"maxMessageSize": "20000"},
    "txn": {"transactionCoordinatorEnabled": "true", "systemTopicEnabled": "true"},
    "bem-exposed": {"exposingBrokerEntryMetadataToClientEnabled": "true"},
    "bem-hidden": {"exposingBrokerEntryMetadataToClientEnabled": "false"},
}
_EVERY_PROFILE: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # Apache's default; the files that we ship name both interceptors.
    "brokerEntryMetadataInterceptors": "",
}
_INTERCEPTORS: Final = ",".join(
    f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor"
    for name in ("BrokerTimestamp", "Index")
)


class BrokerFailedError(RuntimeError):
    """The process ended before it was ready, or would not stop."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of a broker. `pid` is None for one that the test did not start."""

    pulsar: str
    admin: str
    pid: int | None
    pulsar_tls: str = ""
    """The address of the data port with TLS, empty without one."""
    admin_tls: str = ""
    """The address of the admin port with TLS, empty without one."""


def profile_settings(profile: str) -> dict[str, str]:
    """The settings that the recordings of `profile` were made with. KeyError for an unknown profile."""
    settings = {**_EVERY_PROFILE, **PROFILES[profile]}
    if profile.startswith("bem-"):
        settings["brokerEntryMetadataInterceptors"] = _INTERCEPTORS
    return settings


@contextlib.contextmanager
def broker_of_profile(profile: str) -> Iterator[Addresses]:
    """A fresh broker with the settings of `profile`, or the running one that the environment names.

    `MAGNETAR_PULSAR_URL` and `MAGNETAR_ADMIN_URL` replay against any broker; its settings are not ours.
    """
    pulsar, admin = os.environ.get("MAGNETAR_PULSAR_URL"), os.environ.get("MAGNETAR_ADMIN_URL")
    if pulsar and admin:
        yield Addresses(pulsar, admin, None)
        return
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-test-") as folder,
        BrokerProcess(Path(folder), profile_settings(profile)) as broker,
    ):
        yield broker.addresses


class BrokerProcess:
    """`python -m magnetar standalone` on free ports of the loopback, with its data under `folder`."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        memory: bool = False,
        test_faults: bool = False,
    ) -> None:
        """`test_faults`: its clock can be advanced, and faults can be asked for.

        With `MAGNETAR_CLUSTER=3` two more brokers start and stop with it on the same storage, unless the test chose one.
        """
        self.folder = folder
        self.log_path = folder / "broker.log"
        self._ready_path = folder / "ready.json"
        self._settings = dict(settings or {})
        """They win over those of the storage that `python -m tests.storages` chooses."""
        self._memory = memory
        self._test_faults = test_faults
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: Addresses | None = None
        self._others: list[BrokerProcess] = []

    @property
    def addresses(self) -> Addresses:
        if self._addresses is None:
            raise BrokerFailedError("the broker has not been started")
        return self._addresses

    @property
    def pid(self) -> int:
        pid = self.addresses.pid
        assert pid is not None
        return pid

    @property
    def pids(self) -> list[int]:
        """The processes of all its brokers, one without `MAGNETAR_CLUSTER`."""
        return [one.pid for one in (self, *self._others)]

    @property
    def admin_urls(self) -> list[str]:
        """The admin ports of all its brokers, one without `MAGNETAR_CLUSTER`."""
        return [one.addresses.admin for one in (self, *self._others)]

    @property
    def metadata_url(self) -> str:
        """Its metadata store, as `metadataStoreUrl` names it."""
        given = {**settings_for(self.folder, self._settings), **self._settings}
        return given.get("metadataStoreUrl", f"file:{self.folder / 'data/metadata.sqlite'}")

    def start(self) -> Addresses:
        """Returns when the broker says that it is ready. BrokerFailedError where it dies or is too slow."""
        self._spawn()
        self._wait_ready()
        self._start_others()
        return self.addresses

    def _spawn(self) -> None:
        self._ready_path.unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command(), cwd=REPOSITORY, stdout=log, stderr=log)

    def _start_others(self) -> None:
        shared = settings_for(self.folder, self._settings)
        count = int(os.environ.get(CLUSTER, "1")) if shared else 1
        for number in range(2, count + 1):
            folder = self.folder / f"broker{number}"
            folder.mkdir(exist_ok=True)
            own = {**shared, **self._settings, **ports_for(folder, self._settings)}
            self._others.append(BrokerProcess(folder, own, test_faults=self._test_faults))
            # One log for all: a test looks in it for what the broker of its topic says.
            self._others[-1].log_path = self.log_path
            self._others[-1]._spawn()
        for one in self._others:
            one._wait_ready()

    def stop(self) -> int:
        """SIGTERM and its exit status. BrokerFailedError, after a kill, where it does not stop in time."""
        process = self._process
        while self._others:
            self._others.pop().stop()
        if process is None:
            return 0
        self._process = None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailedError(
                f"still running {STOP_TIMEOUT_S} s after SIGTERM\n{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """SIGKILL: no clean shutdown."""
        process = self._process
        while self._others:
            self._others.pop().kill()
        if process is not None:
            self._process = None
            process.kill()
            process.wait()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def resident_bytes(self) -> int:
        """Resident memory of the process now."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def logged(self, *texts: str, count: int = 1) -> list[str]:
        """Returns the lines with every one of `texts`, once there are `count`; AssertionError after a minute.

        The broker writes its log from a helper thread, later than its clients see what a line tells of.
        """
        return wait_for_lines(self.log_path, *texts, count=count)

    def log_lines(self) -> list[str]:
        """Returns all lines so far. They are complete after `stop`; use `logged` for a line of a running broker."""
        return lines_in(self.log_path)

    def log_tail(self, lines: int = 20) -> str:
        """Returns the last lines so far, for the text of an error."""
        return tail_of(self.log_path, lines)

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _command(self) -> list[str]:
        storage = settings_for(self.folder, self._settings)
        in_memory = self._memory and not storage
        where = ["--memory"] if in_memory else ["--data", str(self.folder / "data")]
        settings = {"brokerServicePort": "0", "webServicePort": "0", **storage, **self._settings}
        given = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
        return [
            *(sys.executable, "-m", "magnetar", "standalone", *where, *given),
            *("--ready-file", str(self._ready_path)),
            *(("--test-faults",) if self._test_faults else ()),
        ]

    def _wait_ready(self) -> None:
        process = self._process
        assert process is not None, "spawned"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise BrokerFailedError(
                    f"ended with status {process.returncode} before it was ready\n{self.log_tail()}"
                )
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                ready = json.loads(self._ready_path.read_text(encoding="utf-8"))
                tls = ready.get("pulsar+ssl", ""), ready.get("admin+ssl", "")
                self._addresses = Addresses(
                    ready.get("pulsar", ""), ready.get("admin", ""), ready["pid"], *tls
                )
                return
            time.sleep(_POLL_S)
        process.kill()
        process.wait()
        raise BrokerFailedError(f"not ready after {START_TIMEOUT_S} s\n{self.log_tail()}")
