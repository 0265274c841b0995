"""`python -m bench.connection_memory`: the memory that a broker spends on connections that say little.

    idle   connections that were answered CONNECTED and then are silent
    half   connections that send the first half of a frame of 5 MiB

The broker is `magnetar standalone` in memory, a process of its own, from `--tree`. RSS comes from /proc. Bounded: loopback,
at most CONNECTIONS_MAX connections, and each execution ends after EXECUTION_S_MAX seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import memory
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand

CONNECTIONS_MAX = 15_000
EXECUTION_S_MAX = 180.0
FRAME_BYTES = 5 << 20
_AT_ONCE = 200
_SETTLE_S = 2.0


def main() -> int:
    """Prints one line per kind of connection."""
    parser = argparse.ArgumentParser(prog="python -m bench.connection_memory", description=__doc__)
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections; default 10,000")
    parser.add_argument("--half", type=int, default=1000, help="connections with half a frame; default 1,000")
    parser.add_argument("--tree", default=".", help="checkout whose broker is measured; default this one")
    parser.add_argument("--set", action="append", default=[], help="key=value of the broker")
    options = parser.parse_args()
    if max(options.idle, options.half) > CONNECTIONS_MAX:
        parser.error(f"at most {CONNECTIONS_MAX} connections")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for kind, count in (("idle", options.idle), ("half", options.half)):
        if count:
            print(_measure(kind, count, options))
    return 0


def _measure(kind: str, count: int, options: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-connections-") as folder:
        ready = Path(folder) / "ready.json"
        given = ["brokerServicePort=0", "webServicePort=0", *options.set]
        command = [sys.executable, "-m", "magnetar", "standalone", "--memory", "--ready-file", str(ready)]
        command += [word for one in given for word in ("--set", one)]
        tree = Path(options.tree).resolve()
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        with open(Path(folder) / "log", "wb") as log:
            broker = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log)
        try:
            while not ready.exists():
                if broker.poll() is not None:
                    raise RuntimeError((Path(folder) / "log").read_text())
                time.sleep(0.05)
            port = int(json.loads(ready.read_text())["pulsar"].rpartition(":")[2])
            return asyncio.run(asyncio.wait_for(_connect(kind, count, port, broker.pid), EXECUTION_S_MAX))
        finally:
            broker.kill()
            broker.wait()


async def _connect(kind: str, count: int, port: int, pid: int) -> str:
    before = memory(pid).rss
    began = time.monotonic()
    writers: list[asyncio.StreamWriter] = []
    places = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with places:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            command = BaseCommand(type=BaseCommand.CONNECT)
            command.connect.client_version = "bench"
            command.connect.protocol_version = 19
            writer.write(command_frame(command))
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if kind == "half":
                writer.write(struct.pack(">II", FRAME_BYTES - 4, 10) + b"\x08\x06\x32\x06")
                writer.write(bytes(FRAME_BYTES // 2))
                with contextlib.suppress(ConnectionError):  # Ended by the broker; not counted as open below.
                    await writer.drain()

    await asyncio.gather(*(one() for _ in range(count)))
    await asyncio.sleep(_SETTLE_S)
    rss = memory(pid).rss
    assert rss, "the broker has ended"
    left = sum(not writer.transport.is_closing() for writer in writers)
    for writer in writers:
        writer.transport.abort()
    return (
        f"{kind}: {count} connections, {left} open, {time.monotonic() - began:.1f} s,"
        f" RSS {before:.0f} -> {rss:.0f} MiB, {(rss - before) * 1024 / count:.1f} KiB each"
    )


if __name__ == "__main__":
    sys.exit(main())
