"""Generates traces: Zipf requests, and reads of a broker's log.

The same arguments give the same trace on every machine, byte for byte, so that recorded miss counts can be checked.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipeline.simulators.trace import Trace, trace_of

CURSORS = ((0, 0), (1, 2000), (2, 50), (2, 2000))
"""(class of topics, lag in entries) of each cursor.

The first third of the topics has a cursor at the tail, the second one a slow one, and the last one a near one and
a slow one.
"""
CLASSES = 3
"""Topic number n belongs to class n modulo this."""


def zipf(alpha: float, objects: int, requests: int, seed: int) -> Trace:
    """Draws independent requests by a Zipf law.

    The object of rank r is requested in proportion to r ** -alpha.

    Keys are 1 to `objects` in an order drawn after the requests, so that a key says nothing about its rank.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    shares = np.cumsum(1 / np.arange(1, objects + 1, dtype=np.float64) ** alpha)
    ranks = np.searchsorted(shares / shares[-1], random.random(requests))
    return trace_of(random.permutation(objects)[ranks] + 1)


def broker_log(topics: int, entries: int) -> Trace:
    """Appends to every topic in each round, then reads with every cursor.

    An append is a request too, always a miss. The upper 32 bits of a key are the topic, the lower 32 the number of
    the entry, from 1.
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
    """Appends to topics at random, with readers that lag by chance.

    The miss ratio curve has no cliff.

    Topics get entries by a Zipf law with exponent 0.9 and have one to three cursors each. Nine cursors in ten
    read an entry about `entries` / 1000 appends after it was appended, the tenth about `entries` / 10. Reads after the
    last append are left out. Keys as in `broker_log`.
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
