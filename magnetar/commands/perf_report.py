"""The output of `magnetar perf`: a line per interval, the aggregate at the end, and the histogram file.

The lines have the form of `pulsar-perf`'s, so scripts that read those read these. The client's threads feed `Tally` under
its lock; the functions that format are pure; only `Reporter` prints and writes.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from magnetar.clients.client import CommandError, add_connection_flags, say
from magnetar.commands.latencies import LOG_HEADER, Latencies

_REPORT_INTERVAL_S = 10.0
INTERVAL_PERCENTS = (95, 99, 99.9, 99.99)
"""Percentiles in the line of an interval."""
_TOTAL_PERCENTS = (*INTERVAL_PERCENTS, 99.999)


class PerfCounts(NamedTuple):
    """Totals since the start."""

    messages: int
    """Confirmed or received."""
    bytes: int
    """Payload of those messages."""
    failures: int
    """Messages that the broker did not confirm."""


class Tally:
    """Counts messages, bytes, failures and latencies; any thread may call it.

    Latencies count since the last `take`, all else since the start.
    """

    def __init__(self) -> None:
        """Raises CommandError when the histogram's package is missing."""
        self._lock = threading.Lock()
        self._messages = 0
        self._bytes = 0
        self._failures = 0
        self._latencies = Latencies()

    def succeeded(self, size: int, latency_us: int | None) -> int:
        """Counts a message and returns their number; a latency of None, in the warm-up, is not recorded."""
        with self._lock:
            self._messages += 1
            self._bytes += size
            if latency_us is not None:
                self._latencies.record(latency_us)
            return self._messages

    def failed(self) -> None:
        """Counts a message that was not confirmed."""
        with self._lock:
            self._failures += 1

    def counts(self) -> PerfCounts:
        """Returns the totals of this moment."""
        with self._lock:
            return PerfCounts(self._messages, self._bytes, self._failures)

    def take(self) -> Latencies:
        """Removes and returns the latencies recorded since the last call."""
        with self._lock:
            taken, self._latencies = self._latencies, Latencies()
        return taken


def latency_text(latencies: Latencies, percents: tuple[float, ...]) -> str:
    """Returns mean, median, the given percentiles and maximum, in milliseconds."""
    median, *others = latencies.percentiles_us((50, *percents))
    parts = [f"mean: {latencies.mean_us() / 1000:7.3f} ms", f"med: {median / 1000:7.3f}"]
    parts += [f"{percent:g}pct: {value / 1000:7.3f}" for percent, value in zip(percents, others, strict=True)]
    parts.append(f"Max: {latencies.max_us / 1000:7.3f}")
    return " - ".join(parts)


def produced_line(total: int, messages_s: float, bytes_s: float, failures_s: float, latency: str) -> str:
    """Returns an interval's line of `perf produce`; rates are per second."""
    return (
        f"Throughput produced: {total:7d} msg --- {messages_s:8.1f} msg/s --- {mbit(bytes_s):8.1f} Mbit/s  "
        f"--- failure {failures_s:8.1f} msg/s --- Latency: {latency}"
    )


def received_line(total: int, messages_s: float, bytes_s: float, latency: str) -> str:
    """Returns an interval's line of `perf consume`; rates are per second."""
    return (
        f"Throughput received: {total:7d} msg --- {messages_s:.3f}  msg/s --- {mbit(bytes_s):.3f} Mbit/s  "
        f"--- Latency: {latency}"
    )


def mbit(bytes_s: float) -> float:
    """Returns Mbit/s as Pulsar's tools count them: 1 Mbit = 2^20 bit."""
    return bytes_s * 8 / 1024 / 1024


class Reporter:
    """Prints the lines of one execution, and sums up the latencies of all intervals."""

    def __init__(
        self, tally: Tally, *, producing: bool, interval_s: float, histogram_file: Path | None
    ) -> None:
        """`interval_s` 0 means 10. Raises CommandError when the histogram file cannot be written."""
        self._tally = tally
        self._producing = producing
        self._interval_s = interval_s or _REPORT_INTERVAL_S
        self._total = Latencies()
        self._started = self._last_at = time.monotonic()
        self._last = PerfCounts(0, 0, 0)
        self._log = _open_log(histogram_file)

    def run(self, stop: threading.Event) -> None:
        """Prints a line per interval until `stop` is set."""
        while not stop.wait(self._interval_s):
            self.interval()

    def interval(self) -> None:
        """Prints the line of the interval that ends now."""
        now, counts = time.monotonic(), self._tally.counts()
        length = max(now - self._last_at, 1e-9)
        latencies = self._take(length)
        messages_s = (counts.messages - self._last.messages) / length
        bytes_s = (counts.bytes - self._last.bytes) / length
        failures_s = (counts.failures - self._last.failures) / length
        latency = latency_text(latencies, INTERVAL_PERCENTS)
        if self._producing:
            say(produced_line(counts.messages, messages_s, bytes_s, failures_s, latency))
        else:
            say(received_line(counts.messages, messages_s, bytes_s, latency))
        self._last_at, self._last = now, counts

    def aggregate(self) -> None:
        """Prints the two lines at the end, also after Ctrl-C, and closes the histogram file."""
        now, counts = time.monotonic(), self._tally.counts()
        # The rest of the last interval belongs to the total as well, and has no line of its own.
        self._take(max(now - self._last_at, 1e-9))
        elapsed = max(now - self._started, 1e-9)
        word = "sent" if self._producing else "received"
        failed = f" --- failed {counts.failures} msg" if counts.failures else ""
        say(
            f"Aggregated throughput stats --- {counts.messages} records {word} --- "
            f"{counts.messages / elapsed:.3f} msg/s --- {mbit(counts.bytes / elapsed):.3f} Mbit/s{failed}"
        )
        say(f"Aggregated latency stats --- Latency: {latency_text(self._total, _TOTAL_PERCENTS)}")
        if self._log:
            self._log.close()

    def _take(self, length: float) -> Latencies:
        latencies = self._tally.take()
        self._total.add(latencies)
        # An interval without values has nothing to tell.
        if self._log and latencies.count:
            self._log.write(latencies.log_line(time.time() - length, length))
        return latencies


def _open_log(path: Path | None) -> TextIO | None:
    if path is None:
        return None
    try:
        log = path.open("w", encoding="ascii")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    log.write(LOG_HEADER)
    say(f"Dumping latency stats to {path}")
    return log


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yields an event that the first Ctrl-C or SIGTERM sets, so that the aggregate is still printed.

    A second signal ends the process at once.
    """
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])  # The next signal does what it did before.

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def topics_of(names: list[str], count: int, separator: str = "-") -> list[str]:
    """Returns `name-0` … for one name, or the `count` given names. Raises CommandError for another number."""
    if len(names) == count:
        return names
    if len(names) == 1:
        return [f"{names[0]}{separator}{index}" for index in range(count)]
    raise CommandError("the size of the topics list should be equal to --num-topics")


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that both perf commands take."""
    add = parser.add_argument
    add("topics", nargs="+", help="topic names")
    add("-t", "--num-topics", "--num-topic", type=int, default=1, metavar="N", help="number of topics")
    add("-m", "--num-messages", type=int, default=0, metavar="N", help="messages in total, 0: no end")
    add("-time", "--test-duration", type=float, default=0, metavar="S", help="seconds, 0: no end")
    add("-i", "--stats-interval-seconds", type=float, default=0, metavar="S", help="between lines (0: 10)")
    add("--histogram-file", type=Path, default=None, metavar="FILE", help="write an HdrHistogram log")
    add("-ioThreads", "--num-io-threads", dest="io_threads", type=int, default=1, metavar="N")
    add("-lt", "--num-listener-threads", dest="listener_threads", type=int, default=1, metavar="N")
    add("-c", "--max-connections", metavar="N", help="without effect here")
    add("-threads", "--num-test-threads", metavar="N", help="without effect here")
    add("-ml", "--memory-limit", metavar="SIZE", help="without effect here")
    add("-bw", "--busy-wait", action="store_true", help="without effect here")
    add("-au", "--admin-url", metavar="URL", help="without effect here")
    add_connection_flags(parser, ("-u", "--service-url", "--url"))
