"""`python -m bench.tls`: the price of TLS and authentication, on one broker with both kinds of ports.

    flow          1 KiB messages, unbatched and batched, produced and consumed; CPU of the broker per message, in turns
                  plain as the anonymous role and with TLS and a token; rights are checked for both
    connections   so many connections at once, each until CONNECTED has come; plain, and with TLS and a token, to which
                  some add a client certificate; three times

Bounded: loopback, one broker, at most CONNECTIONS_MAX connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import uvloop

from bench.clients import Client
from bench.processes import cpu_s
from bench.worker import Job
from broker.config.security_keys import TOKEN_PROVIDER
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand
from tests.support.certificates import Certificates
from tests.support.tokens import SECRET_URL, token

CONNECTIONS_MAX = 5000
SIZE = 1024
BATCH = 100
TOKEN = token({"sub": "bench"})


def main() -> int:
    """Prints one line per round and figure, and the ratios of the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the flow; default 5")
    parser.add_argument(
        "--count", type=int, default=40_000, help="unbatched messages; batched are five times as many"
    )
    parser.add_argument("--connections", type=int, default=1000, help="connections at once; default 1,000")
    parser.add_argument("--tree", default=".", help="checkout whose broker is measured; default this one")
    options = parser.parse_args()
    if options.connections > CONNECTIONS_MAX:
        parser.error(f"at most {CONNECTIONS_MAX} connections")
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        folder = Path(name)
        certificates = Certificates(folder / "certificates")
        broker, addresses = _start(folder, certificates, Path(options.tree).resolve())
        try:
            if options.rounds:
                _flow(options, addresses, certificates, broker.pid)
            if options.connections:
                connecting = _connections(options.connections, addresses, certificates, broker.pid)
                uvloop.run(connecting)
        finally:
            broker.kill()
            broker.wait()
    return 0


def _start(
    folder: Path, certificates: Certificates, tree: Path
) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    ready = folder / "ready.json"
    settings = {
        "brokerServicePort": 0,
        "brokerServicePortTls": 0,
        "webServicePort": 0,
        "tlsCertificateFilePath": certificates.server,
        "tlsKeyFilePath": certificates.key(certificates.server),
        "tlsTrustCertsFilePath": certificates.authority,
        "authenticationEnabled": "true",
        "authenticationProviders": TOKEN_PROVIDER,
        "tokenSecretKey": SECRET_URL,
        "anonymousUserRole": "anonymous",
        "authorizationEnabled": "true",
        "superUserRoles": "bench,anonymous",
    }
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(folder / "data")]
    command += ["--ready-file", str(ready)]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with open(folder / "log", "wb") as log:
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        broker = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log)
    while not ready.exists():
        if broker.poll() is not None:
            raise RuntimeError((folder / "log").read_text())
        time.sleep(0.05)
    return broker, json.loads(ready.read_text())


def _flow(options: Any, addresses: dict[str, str], certificates: Certificates, pid: int) -> None:
    for batch, count in ((1, options.count), (BATCH, 5 * options.count)):
        costs: dict[str, list[float]] = {"pulsar": [], "pulsar+ssl": []}
        for number in range(options.rounds):
            # In turns, and the other way round each time: the second of a pair finds warmer files.
            kinds = list(costs) if number % 2 == 0 else list(reversed(costs))
            for kind in kinds:
                costs[kind].append(_cpu_us(kind, addresses[kind], certificates, count, batch, pid))
        ratios = [tls / plain for plain, tls in zip(*costs.values(), strict=True)]
        plain, tls = (statistics.median(values) for values in costs.values())
        print(
            f"{SIZE} B, batches of {batch}: plain {plain:.1f} us, TLS {tls:.1f} us of CPU per message,"
            f" ratio of pairs {', '.join(f'{ratio:.2f}' for ratio in ratios)}, median {statistics.median(ratios):.2f}",
            flush=True,
        )


def _cpu_us(kind: str, url: str, certificates: Certificates, count: int, batch: int, pid: int) -> float:
    """CPU microseconds of the broker per message that is produced and consumed once."""
    topic = f"persistent://public/default/tls-{uuid.uuid4().hex[:8]}"
    base: Job = {"kind": "consume", "url": url, "topic": topic, "count": count}
    if kind == "pulsar+ssl":
        base["trust"] = str(certificates.authority)
        base["token"] = TOKEN
    with (
        Client(base) as consumer,
        Client({**base, "kind": "produce", "size": SIZE, "batch": batch}) as producer,
    ):
        before = cpu_s(pid)
        consumer.go()
        producer.go()
        sent, got = producer.result(), consumer.result()
        spent = cpu_s(pid) - before
    assert sent["failed"] == 0
    assert got["done"] == count
    return spent / count * 1e6


async def _connections(count: int, addresses: dict[str, str], certificates: Certificates, pid: int) -> None:
    anonymous = ssl.create_default_context(cafile=certificates.authority)
    known = ssl.create_default_context(cafile=certificates.authority)
    known.load_cert_chain(certificates.client, certificates.key(certificates.client))
    kinds = {
        "without TLS": None,
        "with TLS and a token": anonymous,
        "with TLS, a token and a client certificate": known,
    }
    for _ in range(3):
        for name, context in kinds.items():
            url = addresses["pulsar+ssl" if context else "pulsar"]
            before, own, began = cpu_s(pid), time.process_time(), time.monotonic()
            port = int(url.rpartition(":")[2])
            attempts = (_connected(port, context) for _ in range(count))
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            took = time.monotonic() - began
            writers = [one for one in outcomes if isinstance(one, asyncio.StreamWriter)]
            print(
                f"{count} connections {name} at once: {len(writers)} served after {took:.2f} s, CPU of each:"
                f" broker {(cpu_s(pid) - before) / count * 1e3:.2f} ms,"
                f" bench {(time.process_time() - own) / count * 1e3:.2f} ms",
                flush=True,
            )
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(0.5)


async def _connected(port: int, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
    host = "localhost" if context else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "bench"
    command.connect.protocol_version = 19
    if context:
        command.connect.auth_method_name, command.connect.auth_data = "token", TOKEN.encode()
    writer.write(command_frame(command))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    answer = BaseCommand.FromString(frame[4:])
    if answer.type != BaseCommand.CONNECTED:
        raise RuntimeError(f"CONNECT was answered with {answer}")
    return writer


if __name__ == "__main__":
    sys.exit(main())
