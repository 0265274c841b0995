"""The page of bookies: disks, journal, read cache, and the time of requests of this broker.

    embedded    the bookie's own report, in this process
    over TCP    disks            asked by BookKeeper's GET_BOOKIE_INFO
                times of adds    measured at this broker's own requests, while the page is open
                journal, cache   read from the bookie's `/metrics`, where its HTTP address is known

The laws:

1. Only a request of the page asks a bookie for anything, and one question to a bookie is out at a time.
2. No bookie delays the page for longer than ANSWER_S. One that hangs is shown as such.
3. A number that is not available is None, and a note says why and how to get it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bookkeeper.client.bookie_question import DiskSpace
from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.embedded import embedded_of
from bookkeeper.client.request_times import Quantiles, RequestTimes
from bookkeeper.ensembles.bookies import Bookies, Unreachable
from broker.console.bookie_http import NoAnswer, fetch_text, reason_of
from broker.console.bookie_metrics import BookieMetrics, metrics_of
from broker.console.sampler import journal_latency
from foundation.bookie_report import BookieReport
from foundation.value import Json

ASK_S: Final = 2.0
"""Seconds that a bookie has for each question."""
ANSWER_S: Final = 3.0
"""Seconds after which the page is answered without the bookies that are still asked."""
LINGER_NS: Final = 30_000_000_000
"""Time after the last request of the page for which the broker goes on measuring its requests."""
BOOKIES_MAX: Final = 200
"""Bookies that are asked and listed."""

MEMORY: Final = "Entries are kept in memory, so there is no disk, journal or read cache."
"""Why numbers of a client that is no connection are missing."""
NO_HTTP: Final = (
    "Journal and read cache are not known, because the bookie's HTTP address is not. Set bookieHttpPort in broker.conf. "
    "A bookie in ZooKeeper registers the address itself: one of Magnetar with a prometheusStatsHttpPort other than 0, "
    "one of Apache with httpServerEnabled=true."
)
"""Why numbers from a bookie's metrics are missing."""
NO_METRICS: Final = (
    "Journal and read cache are not known: http://{address}/metrics has no metrics of a bookie. Set statsProviderClass="
    "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider at a bookie of Apache."
)
"""The same where another server, or a bookie without metrics, answers."""
NOT_REGISTERED: Final = "The bookie is not registered in ZooKeeper, and its id is no address."
"""Why there is no way to a bookie."""
SILENT: Final = f"The bookie did not answer within {ASK_S:g} s."
"""Said of a bookie that hangs."""


Shown = dict[str, Json]
"""One bookie of the answer; None stands for what is not known."""


class BookiesPage:
    """The answers about the bookies of one broker."""

    def __init__(self, bookies: Bookies, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a monotonic clock. Asks nothing before the first request."""
        self._bookies = bookies
        self._now_ns = now_ns
        self._asked_ns = 0
        self._asking: dict[str, asyncio.Task[Shown]] = {}
        self._times: dict[BookKeeperLedgerClient, RequestTimes] = {}

    async def shown(self) -> dict[str, Json]:
        """Returns the answer: one object for each bookie, those for new entries first."""
        self._asked_ns = self._now_ns()
        known = self._bookies.known
        tasks = {name: self._ask(name) for name in known[:BOOKIES_MAX]}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=ANSWER_S)
        shown: list[Json] = [
            task.result() if task.done() else self._silent(name) for name, task in tasks.items()
        ]
        return {"bookies": shown, "more": max(0, len(known) - BOOKIES_MAX)}

    def expire(self) -> None:
        """Ends the measurement of requests when the last request of the page is long ago."""
        if self._times and self._now_ns() - self._asked_ns > LINGER_NS:
            self._end_measurements()

    def close(self) -> None:
        """Ends the questions that are out, because the broker stops."""
        self._end_measurements()
        for task in self._asking.values():
            task.cancel()

    def _ask(self, name: str) -> asyncio.Task[Shown]:
        """Returns the question to a bookie that is out, or a new one."""
        task = self._asking.get(name)
        if task is None or task.done():
            task = self._asking[name] = asyncio.create_task(
                self._look(name), name=f"question to bookie {name}"
            )
        return task

    async def _look(self, name: str) -> Shown:
        client = self._bookies.client(name)
        if isinstance(client, BookKeeperLedgerClient):
            return await self._remote(name, client)
        shown = self._nothing(name)
        embedded = embedded_of(client)
        if embedded is not None:
            try:
                # In a thread, because the file system of a disk that is ill may take its time.
                shown |= _reported(await asyncio.to_thread(embedded.report), journal_latency(self._bookies))
            except OSError as error:
                shown["notes"] = [f"The bookie's directories cannot be read: {reason_of(error)}"]
        else:
            shown["notes"] = [NOT_REGISTERED if isinstance(client, Unreachable) else MEMORY]
        return shown

    async def _remote(self, name: str, client: BookKeeperLedgerClient) -> Shown:
        times = self._measure(client)
        (space, no_space), (metrics, no_metrics) = await asyncio.gather(
            _space(client), _metrics(self._bookies.http_address(name))
        )
        state = _state(self._bookies.read_only(name), space, metrics)
        return {
            **self._nothing(name),
            "state": state,
            "disks": None if space is None else [_disks(space, writable=state != "readonly")],
            "requests": {
                "write": _quantiles(times.adds.quantiles()),
                "read": _quantiles(times.reads.quantiles()),
            },
            **({} if metrics is None else _measured(metrics)),
            "notes": [note for note in (no_space, no_metrics) if note is not None],
        }

    def _measure(self, client: BookKeeperLedgerClient) -> RequestTimes:
        times = self._times.get(client)
        if times is None:
            times = self._times[client] = RequestTimes(self._now_ns)
            client.measure(times)
        return times

    def _end_measurements(self) -> None:
        for client in self._times:
            client.measure(None)
        self._times.clear()

    def _nothing(self, name: str) -> Shown:
        """Returns a bookie of which only the connection is known."""
        client = self._bookies.client(name)
        # Clients without a connection have no such attribute.
        reachable = getattr(client, "reachable", None)
        kind = "memory" if reachable is None else "tcp"
        return {
            "id": name,
            "kind": kind if embedded_of(client) is None else "embedded",
            "connected": True if reachable is None else bool(reachable),
            "state": "unknown",
            "disks": None,
            "writableDirectories": None,
            "requests": None,
            "journal": None,
            "readCache": None,
            "notes": [],
        }

    def _silent(self, name: str) -> Shown:
        shown = self._nothing(name)
        shown["notes"] = [SILENT]
        return shown


async def _space(client: BookKeeperLedgerClient) -> tuple[DiskSpace | None, str | None]:
    """Returns the space of the disks, or None and the reason."""
    try:
        async with asyncio.timeout(ASK_S):
            return await client.disk_space(), None
    except TimeoutError:
        return None, SILENT
    except (OSError, ValueError, OverflowError) as error:  # The last two: a bad name, a bad port.
        return None, f"The bookie did not tell its disks: {reason_of(error)}"


async def _metrics(address: str | None) -> tuple[BookieMetrics | None, str | None]:
    """Returns the numbers of the bookie's metrics, or None and the reason."""
    if address is None:
        return None, NO_HTTP
    try:
        metrics = metrics_of(await fetch_text(address, "/metrics", ASK_S))
    except NoAnswer as error:
        return None, f"Journal and read cache are not known: {error}"
    if metrics.read_only is None and metrics.hits is None:
        return None, NO_METRICS.format(address=address)
    return metrics, None


def _state(registered: bool | None, space: DiskSpace | None, metrics: BookieMetrics | None) -> str:
    """Returns the state by the bookie's own word, else as it is registered if it answers at all.

    `registered` is True for a bookie that is registered as read-only.
    """
    read_only = registered if space is not None else None
    if metrics is not None and metrics.read_only is not None:
        read_only = metrics.read_only
    if read_only is None:
        return "unknown"
    return "readonly" if read_only else "writable"


def _disks(space: DiskSpace, *, writable: bool) -> Json:
    """Returns all disks of a bookie as one row, because the wire tells no more."""
    return {
        "path": None,
        "usedBytes": space.total_bytes - space.free_bytes,
        "freeBytes": space.free_bytes,
        "writable": writable,
    }


def _measured(metrics: BookieMetrics) -> Shown:
    return {
        "writableDirectories": [metrics.writable_directories, metrics.directories],
        "journal": {"p50Ms": metrics.journal_p50_ms, "p99Ms": metrics.journal_p99_ms},
        "readCache": {
            "hits": metrics.hits,
            "misses": metrics.misses,
            "evictedBeforeUse": metrics.evicted_unserved,
        },
    }


def _quantiles(found: Quantiles | None) -> Json:
    return None if found is None else {"p50Ms": found.p50_ms, "p99Ms": found.p99_ms, "samples": found.samples}


def _reported(report: BookieReport, journal: tuple[float | None, float | None]) -> Shown:
    """Returns what an embedded bookie tells of itself."""
    cache = report.read_cache
    return {
        "state": "readonly" if report.read_only else "writable",
        "disks": [
            {
                "path": one.path,
                "usedBytes": one.used_bytes,
                "freeBytes": one.free_bytes,
                "writable": one.writable,
            }
            for one in report.directories
        ],
        "writableDirectories": [sum(one.writable for one in report.directories), len(report.directories)],
        "journal": {"p50Ms": journal[0], "p99Ms": journal[1]},
        "readCache": {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictedBeforeUse": cache.evicted_unserved,
        },
    }
