"""Measures the share of a core that an open page of the console takes.

`python -m bench.console [--rounds 12] [--seconds 5] [--rate 2000] [--topics 100] [--pages overview,topic,cache]`

A broker on disk with that many open topics, first idle and then with a producer and two consumers at `--rate` messages of
1 KiB per second. Windows without a page and with each kind of page alternate, and the CPU time of the broker's process is
read at the ends of each. `overview`: the live stream. `topic`: the stream with one topic's events, and that topic's page
every 5 s. `cache`: the stream, and the cache's page with its miss ratio curve every 5 s. The sampling for the curve goes on
in the windows without a page, so this kind is measured last and shows the page without it; `--sampling` compares a
broker's cache with and without the sampling by itself. Columns: per cent of a core, its growth with the page, and the
standard error of that.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.clients import Client
from bench.peers import Magnetar
from bench.worker import Job
from bench.workloads import new_topic, settle
from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.observe.decisions import Decisions
from broker.entry_cache.observe.miss_ratio import MissRatios
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

PAGES: Final = ("overview", "topic", "cache")
PREFIX: Final = "/admin/v2/magnetar/console"
POLL_S: Final = 5.0
"""Time between two requests of a page beside its stream."""
MESSAGE_BYTES: Final = 1024
WARM_S: Final = 5.0


def main(argv: list[str] | None = None) -> int:
    """Prints a line for each kind of page and load."""
    parser = argparse.ArgumentParser("python -m bench.console")
    parser.add_argument("--rounds", type=int, default=12, help="windows of each kind (12)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a window (5)")
    parser.add_argument("--rate", type=float, default=2000.0, help="messages per second of the busy broker")
    parser.add_argument("--topics", type=int, default=100, help="open topics (100)")
    parser.add_argument("--sampling", action="store_true", help="cost of the miss ratio curve per entry")
    parser.add_argument("--pages", default=",".join(PAGES), help="kinds of pages")
    options = parser.parse_args(argv)
    if options.sampling:
        return _sampling()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    broker = Magnetar("magnetar", ("flushInterval=3600000",))
    try:
        broker.start()
        settle(broker)
        _measure(broker, options)
    finally:
        broker.close()
    return 0


def _sampling() -> int:
    """Prints µs of CPU per entry that is inserted, read once and delivered, in runs of 1, 10 and 100 entries."""
    for run in (1, 10, 100):
        figures: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(10):
            sampled = turn % 4 in (1, 2)
            figures[sampled].append(_entry_us(run, sampled=sampled))
        without, with_it = (min(figures[kind]) for kind in (False, True))
        print(f"runs of {run:>3}: {without:5.2f} µs per entry, sampled {with_it:5.2f} µs", flush=True)
    return 0


def _entry_us(run: int, *, sampled: bool) -> float:
    """A cache of 64 MiB with 20,000 entries of 1 KiB per second of its own clock, of which the miniatures take a part."""
    now_ns = 0
    decisions = Decisions(20_000, lambda: now_ns)
    settings = EntryCacheSettings(size_bytes_max=64 << 20, policy="pip430", profile="4.2", ttl_ns=10**9)
    composed = ComposedCache(settings, decisions)
    cache, entries = composed.manager.open("log"), 200_000
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors, counts_reads=True)
    cursors.add("reader", Position(1, 0), None)
    reader = cache.reader("reader")
    made = [
        [Entry(1, first + place, b"", b"x" * MESSAGE_BYTES, 1) for place in range(run)]
        for first in range(0, entries, run)
    ]
    if sampled:
        decisions.watch(MissRatios(settings, 20_000, lambda _: cursors, 0).take)
    gc.collect()
    begun = time.process_time()
    for one in made:
        first = one[0].entry_id
        now_ns = first * 50_000
        cache.insert_run(one, 1, now_ns)
        composed.manager.delivered(cache.read_run(reader, 1, first, first + run - 1, 5 << 20))
        cursors.update("reader", Position(1, first + run))
        if first % 200 < run:
            composed.tick(now_ns)
    return (time.process_time() - begun) * 1e6 / entries


def _measure(broker: Magnetar, options: argparse.Namespace) -> None:
    url, topic = f"http://127.0.0.1:{broker.http_port}", new_topic("console")
    for number in range(options.topics):
        _open_topic(url, f"{topic}-{number}")
    pages = [page for page in options.pages.split(",") if page]
    # Measured last, see the docstring; both loads, because sampling outlasts its page.
    for page in sorted(pages, key=PAGES.index):
        for busy in (False, True):
            with ExitStack() as load:
                if busy:
                    load.enter_context(_load(broker, topic, options, len(pages)))
                time.sleep(WARM_S)
                _compare(broker, url, topic, page, options, busy=busy)


def _open_topic(url: str, topic: str) -> None:
    path = f"{url}/admin/v2/persistent/{topic.partition('://')[2]}"
    _ask(path, "PUT")
    _ask(f"{path}/stats")


def _ask(url: str, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
    return body


@contextmanager
def _load(broker: Magnetar, topic: str, options: argparse.Namespace, pages: int) -> Iterator[None]:
    seconds = WARM_S * 3 + 2 * options.rounds * (options.seconds + 0.5)
    count = int(options.rate * seconds)
    job: Job = {"kind": "produce", "url": broker.url, "topic": topic, "size": MESSAGE_BYTES, "count": count}
    readers: Job = {**job, "kind": "consume", "subscriptions": ["one", "two"], "idle_s": 30}
    with Client(readers) as consumers, Client({**job, "rate": options.rate}) as producer:
        consumers.go()
        producer.go()
        yield


def _compare(
    broker: Magnetar, url: str, topic: str, page: str, options: argparse.Namespace, *, busy: bool
) -> None:
    assert broker.pid is not None, "started by main"
    shares: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * options.rounds):
        # Without, with, with, without: a drift of the machine falls on both alike.
        with_page = turn % 4 in (1, 2)
        with ExitStack() as opened:
            if with_page:
                opened.enter_context(_page(url, topic, page))
            time.sleep(0.5)
            begun, used = time.monotonic(), cpu_ns(broker.pid)
            time.sleep(options.seconds)
            spent = (cpu_ns(broker.pid) - used) / 1e9
            shares[with_page].append(100 * spent / (time.monotonic() - begun))
    without, with_it = (statistics.mean(shares[kind]) for kind in (False, True))
    error = sum(statistics.variance(shares[kind]) / len(shares[kind]) for kind in (False, True)) ** 0.5
    print(
        f"{'busy' if busy else 'idle'} {page:<9} without {without:6.2f} %   with {with_it:6.2f} %   "
        f"growth {with_it - without:+5.2f} % ± {error:.2f}",
        flush=True,
    )


def cpu_ns(pid: int) -> int:
    """Returns the CPU time of all threads of a process, in ns; the kernel's ticks of 10 ms would be too coarse."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


@contextmanager
def _page(url: str, topic: str, page: str) -> Iterator[None]:
    """Holds a page open in threads of this process."""
    query = f"?topic={topic}-0" if page == "topic" else ""
    stream = urllib.request.urlopen(f"{url}{PREFIX}/events{query}", timeout=60)
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set() and (line := stream.readline()):
            if line.startswith(b"data: "):
                json.loads(line[6:])

    def poll() -> None:
        path = {"topic": f"/topics/{topic.replace('://', '/')}-0", "cache": "/cache"}.get(page)
        while path is not None:
            _ask(f"{url}{PREFIX}{path}")
            if ended.wait(POLL_S):
                break

    threads = [threading.Thread(target=read, daemon=True), threading.Thread(target=poll, daemon=True)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        # The reader meets the flag with the next event, within a second.
        for thread in threads:
            thread.join()
        stream.close()


if __name__ == "__main__":
    raise SystemExit(main())
