"""Do a thousand admin calls in flight delay messages?

`python -m bench.admin_pressure [--rounds 6] [--calls 1000] [--seconds 8] [--route stats|partitioned-stats|lookup]`

A broker on disk, a producer of 1 KiB messages at half of the speed that it reached unhindered, and a process that keeps
`--calls` requests in flight, each on a connection of its own. Rounds with and without the calls alternate. Columns per
round: median and 99th percentile of the time from a send to its receipt, requests answered per second, and the longest of
the lookups that are asked every 50 ms meanwhile. The last line is the ratio of the medians of all 99th percentiles.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.clients import Client
from bench.peers import Magnetar
from bench.worker import Job
from bench.workloads import new_topic, seconds_of, settle

MESSAGE_BYTES = 1024
FULL_SPEED_MESSAGES = 40_000
WARM_SHARE = 0.1
"""Share of the first latencies that is dropped."""
LOOKUP_INTERVAL_S = 0.05
CONNECT_AT_ONCE = 100


class Round(NamedTuple):
    """Figures of one round."""

    median_ms: float
    p99_ms: float
    answered_per_s: float
    lookup_max_ms: float


def main(argv: list[str] | None = None) -> int:
    """Prints a line per round and the ratio."""
    parser = argparse.ArgumentParser("python -m bench.admin_pressure")
    parser.add_argument("--rounds", type=int, default=6, help="of each kind (6)")
    parser.add_argument("--calls", type=int, default=1000, help="requests in flight (1,000)")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a round (8)")
    parser.add_argument(
        "--route",
        choices=("stats", "partitioned-stats", "lookup"),
        default="stats",
        help="request to ask for",
    )
    parser.add_argument("--flood", nargs=2, metavar=("URL", "CALLS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.flood:
        asyncio.run(_flood(options.flood[0], int(options.flood[1])))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A checkpoint takes most of a second, of whichever side is measured when it is due.
    broker = Magnetar("magnetar", ("flushInterval=3600000",))
    try:
        broker.start()
        settle(broker)
        return _measure(broker, options)
    finally:
        broker.close()


def _measure(broker: Magnetar, options: argparse.Namespace) -> int:
    topic = new_topic("pressure")
    job: Job = {
        "kind": "produce",
        "url": broker.url,
        "topic": topic,
        "size": MESSAGE_BYTES,
        "count": FULL_SPEED_MESSAGES,
    }
    with Client(job) as producer:
        producer.go()
        full = FULL_SPEED_MESSAGES / seconds_of(producer.result())
    job["rate"] = full / 2
    job["count"] = int(full / 2 * options.seconds)
    path = _path(topic, options.route)
    print(
        f"full speed {full:,.0f} messages/s; producing {full / 2:,.0f}/s; {options.calls} x GET {path}",
        flush=True,
    )
    found: dict[bool, list[Round]] = {False: [], True: []}
    for turn in range(2 * options.rounds):
        under = bool(turn % 2)
        one = _round(job, f"http://127.0.0.1:{broker.http_port}{path}", options.calls if under else 0)
        found[under].append(one)
        print(
            f"{'with' if under else 'without':<8} median {one.median_ms:7.2f} ms   p99 {one.p99_ms:7.2f} ms   "
            f"{one.answered_per_s:7.0f} answers/s   longest lookup {one.lookup_max_ms:7.1f} ms",
            flush=True,
        )
    quiet, busy = (statistics.median(one.p99_ms for one in found[under]) for under in (False, True))
    print(f"p99 without {quiet:.2f} ms, with {busy:.2f} ms: ratio {busy / quiet:.2f}")
    return 0


def _path(topic: str, route: str) -> str:
    name = topic.partition("://")[2]
    if route == "lookup":
        return f"/lookup/v2/topic/persistent/{name}"
    return f"/admin/v2/persistent/{name}/{route}"


def _round(job: Job, url: str, calls: int) -> Round:
    lookup = url.partition("/admin/")[0].partition("/lookup/")[0] + _path(job["topic"], "lookup")
    with Client(job) as producer, _calls(url, calls) as flood:
        producer.go()
        lookup_ms, until = 0.0, time.monotonic() + job["count"] / job["rate"]
        while time.monotonic() < until:
            begun = time.monotonic()
            with urllib.request.urlopen(lookup, timeout=60) as answer:
                answer.read()
            lookup_ms = max(lookup_ms, (time.monotonic() - begun) * 1000)
            time.sleep(LOOKUP_INTERVAL_S)
        result = producer.result()
        answered = _answered(flood)
    latencies = sorted(result["latencies_us"][int(len(result["latencies_us"]) * WARM_SHARE) :])
    return Round(
        latencies[len(latencies) // 2] / 1000,
        latencies[len(latencies) * 99 // 100] / 1000,
        answered,
        lookup_ms,
    )


@contextmanager
def _calls(url: str, calls: int) -> Iterator[subprocess.Popen[str] | None]:
    """Keeps requests in flight, in a process of its own; ready when all have been sent."""
    if not calls:
        yield None
        return
    command = [sys.executable, "-m", "bench.admin_pressure", "--flood", url, str(calls)]
    flood = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert flood.stdout is not None
        assert flood.stdout.readline().strip() == "ready"
        yield flood
    finally:
        flood.kill()
        flood.wait()


def _answered(flood: subprocess.Popen[str] | None) -> float:
    """Ends the calls and returns the answers per second; the calls must all have been answered 200."""
    if flood is None:
        return 0.0
    text, _ = flood.communicate("end\n", timeout=60)
    numbers = json.loads(text)
    assert numbers["refused"] == 0, numbers
    return float(numbers["per_s"])


class _Call(asyncio.Protocol):
    """A connection that asks again as soon as it is answered; a client library would take more CPU than the broker."""

    def __init__(self, request: bytes) -> None:
        self.answered = 0
        self.refused = 0
        self._request = request
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Sends the next request behind a whole answer."""
        self._data += data
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self.answered += head.startswith(b"HTTP/1.1 200")
            self.refused += not head.startswith(b"HTTP/1.1 200")
            self._data = b""
            assert self._transport is not None
            self._transport.write(self._request)


async def _flood(url: str, calls: int) -> None:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    assert parts.hostname is not None
    request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    open_calls: list[_Call] = []
    for first in range(0, calls, CONNECT_AT_ONCE):
        made = await asyncio.gather(
            *(
                loop.create_connection(lambda: _Call(request), parts.hostname, parts.port or 80)
                for _ in range(min(CONNECT_AT_ONCE, calls - first))
            )
        )
        open_calls += [call for _, call in made]
    before, began = sum(call.answered for call in open_calls), time.monotonic()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    seconds = time.monotonic() - began
    answered = sum(call.answered for call in open_calls) - before
    print(
        json.dumps({"per_s": answered / seconds, "refused": sum(call.refused for call in open_calls)}),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
