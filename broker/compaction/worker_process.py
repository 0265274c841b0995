"""WorkerProcess: the broker's end of a compaction worker.

A process of its own, because pass one costs a microsecond of Python per message. On the event loop that would stop
clients; a thread would take the interpreter from the loop for 5 ms at a time.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from broker.compaction.frames import (
    HEAD,
    FrameKind,
    Numbered,
    decode_entries,
    decode_result,
    encode_entries,
    encode_settings,
    frame,
)
from broker.compaction.passes import PassesSettings, PassOneResult
from foundation.model.errors import BrokerError

_ROOT: Final = str(Path(__file__).resolve().parents[2])
"""The folder that this package was imported from."""
_PROGRAM: Final = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); from broker.compaction.worker import main; main()"
)
_PIPE_BYTES: Final = 1 << 20
"""Bytes of an answer that are read ahead."""
_END_S: Final = 5.0
"""Time for a worker to end by itself; it is killed after that."""


class WorkerFailed(BrokerError):
    """The worker ended before its work."""


class Worker(Protocol):
    """Runs the passes of one compaction. Every method raises WorkerFailed when the worker is gone.

    Tests and simulations run the passes in their own process instead of a `WorkerProcess`.
    """

    async def add(self, entries: Sequence[Numbered]) -> None:
        """Hands over the next entries of pass one; waits while the worker is busy."""
        ...

    async def end_round(self) -> PassOneResult | None:
        """Ends a round of pass one; None when all entries must be added once more."""
        ...

    async def rewrite(self, entries: Sequence[Numbered]) -> list[bytes]:
        """Returns each batch without its removed messages."""
        ...

    async def close(self) -> None:
        """Ends the worker."""
        ...


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, process: Process) -> None:
        """Called by `start` alone."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    @classmethod
    async def start(cls, settings: PassesSettings) -> WorkerProcess:
        """Starts a process. OSError when the system refuses one."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Without the working directory in the path, where another package named `broker` may lie.
            "-P",
            "-c",
            _PROGRAM,
            stdin=PIPE,
            stdout=PIPE,
            limit=_PIPE_BYTES,
            # Or an interrupt at the terminal would end it before the broker has stopped.
            start_new_session=True,
        )
        worker = cls(process)
        await worker._send(frame(FrameKind.SETTINGS, encode_settings(settings)))
        return worker

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, None while it runs; negative for a signal."""
        return self._process.returncode

    async def add(self, entries: Sequence[Numbered]) -> None:
        """Sends the next entries of pass one; waits while the worker is busy."""
        await self._send(frame(FrameKind.ENTRIES, encode_entries(entries)))

    async def end_round(self) -> PassOneResult | None:
        """Ends a round of pass one; None when all entries must be added once more."""
        await self._send(frame(FrameKind.END_ROUND))
        kind, content = await self._receive()
        return None if kind == FrameKind.AGAIN else decode_result(content)

    async def rewrite(self, entries: Sequence[Numbered]) -> list[bytes]:
        """Returns each batch without its removed messages."""
        await self._send(frame(FrameKind.REWRITE, encode_entries(entries)))
        _, content = await self._receive()
        return [bytes(body) for _, body in decode_entries(content)]

    async def _send(self, data: bytes) -> None:
        try:
            self._input.write(data)
            await self._input.drain()
        except OSError as error:
            raise WorkerFailed(f"the compaction worker has ended: {error}") from error

    async def _receive(self) -> tuple[int, bytes]:
        try:
            kind, length = HEAD.unpack(await self._output.readexactly(HEAD.size))
            return kind, await self._output.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise WorkerFailed("the compaction worker has ended; its error is in the broker's log") from error

    async def close(self) -> None:
        """Ends the process, by force when it does not end in time."""
        # The end of its input ends it. A worker that was killed has closed the pipe already.
        with suppress(OSError):
            self._input.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
