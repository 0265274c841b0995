"""Traces that can be made anywhere: requests drawn from a Zipf law, and the reads of a broker's log."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipeline.simulators.trace import Trace, trace_of

CURSORS = ((0, 0), (1, 2000), (2, 50), (2, 2000))
"""(class of topics, lag in entries): a third of the topics has a cursor that tails, a third one that is far
behind, a third one close behind and one far behind."""
CLASSES = 3


def zipf(alpha: float, objects: int, requests: int, seed: int) -> Trace:
    """Independent requests; the object of rank r is asked for in proportion to r ** -alpha.

    Keys are 1 to `objects` in an order drawn after the requests, so that a key says nothing about its rank.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    shares = np.cumsum(1 / np.arange(1, objects + 1, dtype=np.float64) ** alpha)
    ranks = np.searchsorted(shares / shares[-1], random.random(requests))
    return trace_of(random.permutation(objects)[ranks] + 1)


def broker_log(topics: int, entries: int) -> Trace:
    """In each round every topic gets one entry, then the cursors read one entry each, all of one kind after another.

    An append is a request too, always a miss. The key of an entry is its topic in the high half and its number
    from 1 in the low half.
    """
    first_keys = np.arange(topics, dtype=np.uint64) << np.uint64(32)
    readers = [(first_keys[number::CLASSES], lag) for number, lag in CURSORS]
    lags = sorted({0, entries, *(lag for _, lag in CURSORS if lag < entries)})
    blocks = []
    for first, end in pairwise(lags):
        # Between two lags the same cursors read in each round, so the rounds are the rows of one table.
        rounds = np.arange(first, end, dtype=np.int64)[:, None]
        parts = [first_keys + (rounds + 1).astype(np.uint64)]
        parts += [keys + (rounds - lag + 1).astype(np.uint64) for keys, lag in readers if lag <= first]
        blocks.append(np.concatenate(parts, axis=1).ravel())
    return trace_of(np.concatenate(blocks))


def lagging_readers(entries: int, topics: int, seed: int) -> Trace:
    """A log whose readers lag by chance: no round, no cliff in the miss ratio curve.

    Topics get entries by a Zipf law with exponent 0.9 and have one to three cursors each. Nine cursors in ten
    read an entry about `entries` / 1000 appends after it came, the tenth about `entries` / 10; what would be read
    after the end is not read. Keys as in `broker_log`.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    shares = np.cumsum(1 / np.arange(1, topics + 1, dtype=np.float64) ** 0.9)
    topic = np.searchsorted(shares / shares[-1], random.random(entries))
    appended = np.arange(entries)
    times, read = [appended.astype(np.float64)], [appended]
    for cursor in range(3):
        lag = np.where(random.random(topics) < 0.1, entries / 10, entries / 1000)[topic]
        time = appended + lag * random.exponential(1.0, entries)
        reads = (random.integers(1, 4, topics)[topic] > cursor) & (time < entries)
        times.append(time[reads])
        read.append(appended[reads])
    keys = (topic.astype(np.uint64) << np.uint64(32)) + appended.astype(np.uint64) + np.uint64(1)
    return trace_of(keys[np.concatenate(read)[np.argsort(np.concatenate(times), kind="stable")]])
