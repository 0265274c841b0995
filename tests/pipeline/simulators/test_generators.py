"""Generated traces are the ones that golden numbers were recorded on, byte for byte."""

from __future__ import annotations

import hashlib

import numpy as np

from pipeline.simulators.generators import broker_log, lagging_readers, zipf
from pipeline.simulators.trace_files import oracle_general


def test_zipf_is_the_recorded_trace() -> None:
    trace = zipf(1.0, 100_000, 1_000_000, 42)
    assert trace.objects == 80_818
    recorded = "2d61f1baf2a72dc824fe1fd0a0348779ecdd17f9d03ec5e7d80c971b7e5e32c5"
    assert hashlib.sha256(oracle_general(trace)).hexdigest() == recorded


def test_broker_log_is_the_recorded_trace() -> None:
    trace = broker_log(100, 5000)
    assert (len(trace), trace.objects) == (1_031_350, 500_000)
    recorded = "57bab11d89a0d369b33de978a67ba51c7d917ddc6a7692879b6302a1e8c0ea83"
    assert hashlib.sha256(oracle_general(trace)).hexdigest() == recorded


def test_broker_log_appends_then_reads_in_each_round() -> None:
    """Four topics, of which 0 and 3 have the tailing cursor: appends first, then their reads, and no other yet."""
    trace = broker_log(4, 3)
    topic, entry = trace.keys[trace.ids] >> np.uint64(32), trace.keys[trace.ids] & np.uint64(0xFFFFFFFF)
    assert topic.tolist() == [0, 1, 2, 3, 0, 3] * 3
    assert entry.tolist() == [1] * 6 + [2] * 6 + [3] * 6


def test_lagging_readers_read_each_entry_after_its_append() -> None:
    trace = lagging_readers(20_000, 200, 1)
    assert trace.objects == 20_000
    entries = trace.keys[trace.ids] & np.uint64(0xFFFFFFFF)
    first = np.unique(trace.ids, return_index=True)[1]
    assert (np.diff(entries[first].astype(np.int64)) == 1).all(), "first requests are the appends, in order"
    requests = np.bincount(trace.ids)
    assert requests.max() <= 4
    assert requests.mean() > 2
