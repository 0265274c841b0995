"""Broker: a broker in a process of its own for the length of a test."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final
from urllib.parse import quote

from magnetar.kit.controls import Clock, Faults
from magnetar.kit.errors import BrokerFailedError, KitError
from magnetar.kit.pulsar_under_test import PulsarUnderTest

STOP_S: Final = 90.0
"""Time for a clean stop; the process is killed after it. Longer than brokerShutdownTimeoutMs, the broker's own limit."""
_READY_BYTES_MAX: Final = 65_536
_LOG_LINES: Final = 20
_KIT_ROLE: Final = "magnetar-kit"
"""The superuser of a broker with `tokens=True`, as which the kit asks the admin API."""

__all__ = ["Broker", "BrokerFailedError"]


_ROOT: Final = str(Path(__file__).resolve().parents[2])
"""The folder that this package was imported from: of a source checkout, or of installed packages."""
# In front of installed packages, one of which may be another version; after the standard library, whose names nothing
# in that folder may take.
_PROGRAM: Final = (
    "import runpy, sys; "
    "installed = [place for place, path in enumerate(sys.path) if path.endswith('-packages')]; "
    f"sys.path.insert(min(installed, default=len(sys.path)), {_ROOT!r}); "
    "runpy.run_module('magnetar', run_name='__main__', alter_sys=True)"
)
"""Runs the code that this process has imported."""


class Broker(PulsarUnderTest):
    """A Pulsar broker for tests: `with Broker() as broker: pulsar.Client(broker.pulsar_url)`.

    Also `async with Broker()`. Without `data` it keeps everything in memory. It listens on free ports of the
    loopback, keeps them over a restart, and ends with the process that started it, even if that one is killed.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        python: str = sys.executable,
        token: str | None = None,
        tokens: bool = False,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Starts nothing yet.

        `data`: folder of everything that is kept, so that a restart finds it. `settings`: keys of `broker.conf`;
        True and False become `true` and `false`. `python`: another interpreter, which has Magnetar installed. `token`: goes
        with the kit's own requests to the admin API; needed with `authenticationEnabled`. `tokens`: the broker
        accepts the tokens of the method `token` alone, and checks rights; the kit makes the key and a token for itself.
        """
        self._data = None if data is None else Path(data).absolute()
        self._settings = {"forceDeleteNamespaceAllowed": True, **(settings or {})}
        self._python = python
        self._token = token
        self._secret = secrets.token_bytes(32) if tokens else None
        if tokens:
            self._settings = {**_token_settings(self._secret or b""), **self._settings}
            self._token = self.token(_KIT_ROLE)
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        # A file without a name, and a pipe for the addresses: a kill -9 of this process leaves nothing on the disk.
        self._log: BinaryIO | None = None
        self._urls: dict[str, str] = {}

    # Start and stop

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        # In a thread: a start takes some tenths of a second, in which other tasks may run.
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def start(self) -> None:
        """Starts the process and returns when clients can connect. BrokerFailedError has the end of the log."""
        if self._process is not None:
            raise KitError("the broker runs already")
        if self._log is None:
            # Closed by `close`, or when the start fails.
            self._log = tempfile.TemporaryFile(prefix="magnetar-kit-")  # noqa: SIM115
        ready, writer = os.pipe()
        with FileIO(ready) as addresses:
            try:
                self._process = subprocess.Popen(
                    self._command(writer),
                    stdin=subprocess.PIPE,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=(writer,),
                    start_new_session=True,
                )
            finally:
                os.close(writer)
            try:
                self._urls = self._await_ready(self._process, addresses)
            except BaseException:
                self.kill()
                self.close()
                raise

    def stop(self) -> None:
        """Stops cleanly: everything that was confirmed is on disk. Does nothing when it does not run."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailedError(f"no clean stop within {STOP_S:.0f} s\n{self._log_tail()}") from None
        self._ended(process)

    def kill(self) -> None:
        """Ends the process at once, as a crash does. `start` brings the broker back on the same ports."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended(self._process)

    def restart(self) -> None:
        """Stops and starts again on the same ports; a broker in memory comes back empty."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops and drops the log; `data` stays."""
        try:
            self.stop()
        finally:
            if self._log is not None:
                self._log.close()
                self._log = None

    # Use

    @property
    def pulsar_url(self) -> str:
        """`pulsar://localhost:port` for clients."""
        return self._url("pulsar")

    @property
    def admin_url(self) -> str:
        """`http://localhost:port` of the admin API."""
        return self._url("admin")

    @property
    def clock(self) -> Clock:
        """The broker's clock, which a test may advance."""
        return Clock(self.admin_url, self._token)

    @property
    def faults(self) -> Faults:
        """The faults that the broker commits on demand."""
        return Faults(self.admin_url, self._token)

    def token(
        self,
        role: str,
        permissions: Mapping[str, Sequence[str]] | None = None,
        *,
        expires: datetime | None = None,
    ) -> str:
        """Returns a token for the role, of a broker that was made with `tokens=True`; KitError of any other.

        `permissions` are granted first: by namespace (`public/default`), the actions of Pulsar (`produce`, `consume`).
        `expires` is a time of the broker's clock; None = never.
        """
        if self._secret is None:
            raise KitError("this broker asks for no token of the kit: make it with Broker(tokens=True)")
        # Imported here: most tests need no cryptography.
        from magnetar.clients.token_keys import token_by_secret

        for namespace, actions in (permissions or {}).items():
            if namespace.count("/") != 1:
                raise KitError(
                    f"permissions: {namespace!r} is not a namespace: give tenant/namespace, as in public/default"
                )
            self.ask("POST", f"/admin/v2/namespaces/{namespace}/permissions/{quote(role, '')}", list(actions))
        claims: dict[str, object] = {"sub": role}
        if expires is not None:
            claims["exp"] = int(expires.timestamp())
        return token_by_secret(self._secret, claims, {})

    def end_faults(self) -> list[str]:
        """Takes all faults back and returns those that have not happened; none while the broker does not run."""
        return self.faults.clear() if self._process is not None else []

    def refused_schemas(self) -> int:
        """Returns how many schemas of clients were refused as incompatible since the start of the process."""
        counts = self.ask("GET", "/magnetar/test/refusals")
        assert isinstance(counts, dict)
        return int(counts.get("IncompatibleSchema", 0))

    @property
    def pid(self) -> int:
        """Number of the process; KitError when it does not run."""
        if self._process is None:
            raise KitError("the broker does not run: call start()")
        return self._process.pid

    @property
    def log(self) -> str:
        """The log so far. It is written by a thread, so the newest lines may come a moment later."""
        if self._log is None:
            return ""
        # Not read(), which would move the place at which the broker writes: both processes share it.
        number = self._log.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    # Parts

    def _url(self, name: str) -> str:
        if name not in self._urls:
            raise KitError("the broker has not been started: use `with Broker() as broker`, or call start()")
        return self._urls[name]

    def _command(self, ready: int) -> list[str]:
        # -I: a test's PYTHONPATH, and modules in its folder with names of ours, are not for the broker.
        code = ["-c", _PROGRAM] if self._python == sys.executable else ["-m", "magnetar"]
        words = [self._python, "-I", *code, "standalone", "--test-faults", "--until-eof"]
        words += ["--ready-file", f"/dev/fd/{ready}", "--log-format", "plain"]
        words += ["--memory"] if self._data is None else ["--data", str(self._data)]
        ports = {
            "brokerServicePort": _port(self._urls.get("pulsar")),
            "webServicePort": _port(self._urls.get("admin")),
        }
        for key, value in {**ports, **self._settings}.items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        return words

    def _await_ready(self, process: subprocess.Popen[bytes], addresses: FileIO) -> dict[str, str]:
        """Returns the addresses that the broker writes into the pipe when clients can connect."""
        with selectors.DefaultSelector() as selector:
            selector.register(addresses, selectors.EVENT_READ)
            if not selector.select(self._start_timeout_s):
                raise BrokerFailedError(f"not ready within {self._start_timeout_s:.0f} s\n{self._log_tail()}")
        # The broker writes them at once, and a pipe keeps so few bytes together.
        text = addresses.read(_READY_BYTES_MAX)
        if not text:
            # The other end of the pipe was closed by the end of the process.
            raise BrokerFailedError(f"the broker ended with {process.wait()}\n{self._log_tail()}")
        found: dict[str, str] = json.loads(text)
        return found

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    def _log_tail(self) -> str:
        return "\n".join(self.log.splitlines()[-_LOG_LINES:])


def _token_settings(secret: bytes) -> dict[str, object]:
    """Returns the keys of `broker.conf` by which a broker accepts tokens of this secret, and checks rights."""
    return {
        "authenticationEnabled": True,
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "authorizationEnabled": True,
        "superUserRoles": _KIT_ROLE,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
    }


def _port(url: str | None) -> int:
    """Returns the port of an earlier start, 0 for any free one."""
    return int(url.rsplit(":", 1)[1]) if url else 0
