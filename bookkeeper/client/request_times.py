"""RequestTimes: the time that a bookie takes to answer, from a sample of the broker's own requests.

The sample is one add and one read of each turn of the loop, the last ones, so its cost does not grow with the load. A
request counts from the write to its connection to the answer, which includes the network and the bookie's own queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, ReadDone
from protocol.bookie_frame import RC_OK

KEPT_MAX: Final = 1_000
"""Samples of a kind that are kept, the newest ones."""
KEPT_NS: Final = 60_000_000_000
"""Age of the oldest sample that counts."""


class Quantiles(NamedTuple):
    """The distribution of some samples."""

    p50_ms: float
    """Median."""
    p99_ms: float
    """99th percentile."""
    samples: int
    """Their number."""


class RecentTimes:
    """The newest times of one kind of request."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a monotonic clock."""
        self._now_ns = now_ns
        self._times: deque[tuple[int, int]] = deque(maxlen=KEPT_MAX)

    def add(self, sent_ns: int) -> None:
        """Notes that a request of this time has been answered now."""
        now_ns = self._now_ns()
        self._times.append((now_ns, now_ns - sent_ns))

    def quantiles(self) -> Quantiles | None:
        """Returns the distribution of the last minute; None without a sample."""
        oldest_ns = self._now_ns() - KEPT_NS
        took = sorted([took_ns for at_ns, took_ns in self._times if at_ns >= oldest_ns])
        if not took:
            return None
        return Quantiles(took[len(took) // 2] / 1e6, took[len(took) * 99 // 100] / 1e6, len(took))


class RequestTimes:
    """The samples of one bookie."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a monotonic clock."""
        self.adds = RecentTimes(now_ns)
        """Adds of entries."""
        self.reads = RecentTimes(now_ns)
        """Reads of entries, single ones and batches."""
        self._now_ns = now_ns

    def timed_add(self, done: AddDone) -> AddDone:
        """Returns a completion that notes the time of an add that is sent now, and then calls `done`."""
        return partial(_added, self.adds, self._now_ns(), done)

    def timed_read(self, done: ReadDone) -> ReadDone:
        """Returns the same for a read of one entry."""
        return partial(_read, self.reads, self._now_ns(), done)

    def timed_batch(self, done: BatchReadDone) -> BatchReadDone:
        """Returns the same for a read of several."""
        return partial(_batch_read, self.reads, self._now_ns(), done)


# A refusal counts for nothing: a broken connection answers at once.


def _added(sample: RecentTimes, sent_ns: int, done: AddDone, rc: int, entry_id: int) -> None:
    if rc == RC_OK:
        sample.add(sent_ns)
    done(rc, entry_id)


def _read(sample: RecentTimes, sent_ns: int, done: ReadDone, rc: int, entry: bytes) -> None:
    if rc == RC_OK:
        sample.add(sent_ns)
    done(rc, entry)


def _batch_read(
    sample: RecentTimes, sent_ns: int, done: BatchReadDone, rc: int, entries: list[bytes]
) -> None:
    if rc == RC_OK:
        sample.add(sent_ns)
    done(rc, entries)
