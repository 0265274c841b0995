"""Checks `cachesim/*.csv`: one row is a policy, a capacity and a trace, with the misses that libCacheSim recorded.

The policies are libCacheSim's own, so the rows check our use of it: keys, sizes, the future for Belady, generated traces.

Traces are made here where a generator can make them, byte for byte as the recorded checksum says. The others are
files that `python -m tests.vectors.fetch_traces` brings; where one is missing its rows are skipped.
"""

from __future__ import annotations

import csv
import hashlib
import re
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from pipeline.simulators.generators import broker_log, zipf
from pipeline.simulators.simulation import SimulatorMissing, simulate
from pipeline.simulators.trace import Trace
from pipeline.simulators.trace_files import oracle_general, read_trace
from tests.vectors.fetch_traces import COMMAND, find_trace, traces_folder
from tests.vectors.result import Result

Row = dict[str, str]

_ZIPF = re.compile(r"zipf_a(?P<alpha>[\d.]+)_m(?P<objects>\d+)k_n(?P<requests>\d+)M_s(?P<seed>\d+)")
_BROKER_LOG = re.compile(r"brokerlog_t(?P<topics>\d+)_e(?P<entries>\d+)")
_COLUMNS = {"trace", "sha256", "ignore_obj_size", "policy", "cache_size", "miss_count", "byte_miss_ratio"}


class TraceMissing(Exception):
    """The file of a trace is absent; the message says how to get it."""


def run_file(path: Path) -> Result:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = _COLUMNS - set(reader.fieldnames or ())
        if missing:
            return Result(failed=1, messages=[f"{path.name}: no column {', '.join(sorted(missing))}"])
        rows = list(reader)
    result = Result()
    for name, of_trace in groupby(rows, key=lambda row: row["trace"]):
        result.add(run_rows(name, list(of_trace)))
    return result


def run_rows(name: str, rows: list[Row]) -> Result:
    """Checks all rows of one trace."""
    try:
        trace = trace_named(name, rows[0]["sha256"])
    except TraceMissing as reason:
        return Result(messages=[f"{name}: {len(rows)} rows skipped: {reason}"])
    except ValueError as error:
        return Result(failed=len(rows), messages=[str(error)])
    result = Result()
    for row in rows:
        label = f"{name} {row['policy']} {row['cache_size']} {row['unit']}"
        result.judge(label, first_difference(row, trace), None)
    return result


def first_difference(row: Row, trace: Trace) -> str | None:
    if row["ignore_obj_size"] == "1":
        trace = trace.with_equal_sizes()
    facts = {"n_req": len(trace), "n_unique": trace.objects, "total_bytes": trace.size_of_requests()}
    got = {name: str(fact) for name, fact in facts.items()}
    try:
        simulation = simulate(row["policy"], trace, int(row["cache_size"]))
    except (SimulatorMissing, ValueError) as error:
        return str(error)
    got["miss_count"] = str(simulation.misses)
    got["miss_ratio"] = f"{simulation.miss_ratio:.10f}"
    got["byte_miss_ratio"] = f"{simulation.size_miss_ratio:.10f}"
    return next(
        (f"{name}: expected {row[name]}, got {one}" for name, one in got.items() if one != row[name]), None
    )


@lru_cache(maxsize=4)
def trace_named(name: str, sha256: str) -> Trace:
    """Generates or reads the recorded trace. TraceMissing; ValueError where it differs from the recorded one."""
    made = _made(name)
    if made is not None:
        content, trace = oracle_general(made), made
    else:
        path = find_trace(name, sha256)
        if path is None:
            raise TraceMissing(f"not in {traces_folder()}; fetch it with `{COMMAND}`")
        content, trace = path.read_bytes(), read_trace(path)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{name}: another trace than the recorded one: sha256 {found}, not {sha256}")
    return trace


def _made(name: str) -> Trace | None:
    if match := _ZIPF.fullmatch(name):
        thousands, millions = int(match["objects"]), int(match["requests"])
        return zipf(float(match["alpha"]), thousands * 1000, millions * 1_000_000, int(match["seed"]))
    if match := _BROKER_LOG.fullmatch(name):
        return broker_log(int(match["topics"]), int(match["entries"]))
    return None
