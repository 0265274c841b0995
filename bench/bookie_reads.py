"""What do cold readers cost a bookie, by policy of its read cache (`ring`, `lru`, `served-first`)?

`python -m bench.bookie_reads [--only curve shares adds] [--quick] [--plot FILE] [--json FILE]`

Three parts, printed as tables (`bookie_tables.py`): disk reads per entry over the number of readers, for three sizes of
readahead; disk reads per entry over the share of the readers' demand that fits into the cache; and the latency of a
writer beside cold readers (`writer_beside.py`).

Law: all reads are of real entry logs that are dropped from the page cache. Each cell is bounded in time, and printed as
soon as it is measured. The entry cache's policy has no part in it: no broker runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.bookie_plot import plot
from bench.bookie_tables import KNEE_READERS, SHARE_BATCH, SHARE_READERS, Results
from bench.cold_readers import LEDGERS, Cell, demand_bytes, measure, simulate, write_ledgers
from bench.writer_beside import measure_adds
from bookie_stub.__main__ import SWITCH_INTERVAL_S
from bookie_stub.disk.read_cache import POLICIES

TURNS = (1, 10, 50)
"""Entries in a row for the reader that is drawn, in the table of shares."""
PARTS = ("curve", "shares", "adds")


@dataclass(frozen=True, slots=True)
class Scale:
    """How many cells are measured, and for how long."""

    readers: tuple[int, ...]
    """Numbers of readers of the curve."""
    batches: tuple[int, ...]
    """Sizes of readahead, in entries."""
    shares: tuple[float, ...]
    """Sizes of the cache by the demand of all readers."""
    entries: int
    """Entries of each of the LEDGERS ledgers."""
    cell_s: float
    """Seconds after which a cell that thrashes is ended."""
    adds_s: float
    """Seconds per round and kind of readers."""
    adds_rounds: int


FULL = Scale(
    (1, 2, 4, 8, 12, 14, 15, 16, 17, 18, 20, 24, 32, 48, 64),
    (50, 100, 1000),
    (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0),
    3003,
    3.0,
    3.0,
    3,
)
QUICK = Scale((1, 8, 15, 18, 32, 64), (50, 1000), (0.5, 0.9, 1.25), 2002, 1.0, 2.0, 1)


def main(argv: list[str] | None = None) -> int:
    """Writes the ledgers, measures the chosen parts, prints the tables."""
    arguments = _parser().parse_args(argv)
    scale = QUICK if arguments.quick else FULL
    parts = arguments.only or PARTS
    began = time.monotonic()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory(prefix="bench-bookie-", dir=arguments.data) as name:
        results = asyncio.run(_run(Path(name), scale, parts))
    print("\n" + "\n\n".join(results.tables()))
    print(f"\n{time.monotonic() - began:.0f} s")
    if arguments.plot and results.curve:
        plot(results.curve, KNEE_READERS, arguments.plot)
        print(f"drawn in {arguments.plot}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")
        print(f"kept in {arguments.json}")
    return 0


async def _run(directory: Path, scale: Scale, parts: Sequence[str]) -> Results:
    print(f"writing {LEDGERS} ledgers of {scale.entries:,} entries of 1 KiB", flush=True)
    await write_ledgers(directory, scale.entries)
    results = Results([], [], {})
    if "curve" in parts:
        for batch in scale.batches:
            cache_bytes = demand_bytes(KNEE_READERS, batch)
            for readers in scale.readers:
                for policy in POLICIES:
                    results.curve.append(
                        await measure(
                            directory,
                            scale.entries,
                            policy,
                            batch,
                            readers,
                            cache_bytes,
                            seconds=scale.cell_s,
                        )
                    )
                    _show(results.curve[-1])
    if "shares" in parts:
        for turn in TURNS:
            for share in scale.shares:
                results.shares += await _share_row(directory, scale, share, turn)
    if "adds" in parts:
        results.adds = await measure_adds(directory, scale.entries, scale.adds_s, scale.adds_rounds)
    return results


async def _share_row(directory: Path, scale: Scale, share: float, turn: int) -> list[tuple[int, float, Cell]]:
    row = []
    for policy in POLICIES:
        simulated = simulate(policy, SHARE_BATCH, SHARE_READERS, share, turn)
        cache_bytes = int(share * demand_bytes(SHARE_READERS, SHARE_BATCH))
        cell = await measure(
            directory,
            scale.entries,
            policy,
            SHARE_BATCH,
            SHARE_READERS,
            cache_bytes,
            turn=turn,
            seconds=2 * scale.cell_s,
        )
        row.append((turn, simulated, cell))
        _show(cell)
    return row


def _show(cell: Cell) -> None:
    print(
        f"{cell.policy:<13}batch {cell.batch:>5}  readers {cell.readers:>3}  share {cell.share:5.2f}"
        f"  disk reads per entry {cell.disk_reads_per_entry:8.2f}  device {cell.device_bytes_per_byte:8.2f}"
        f"  {cell.entries_per_s:>9,.0f} entries/s  ({cell.served:,} served)",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m bench.bookie_reads", description="Cold readers and the read cache."
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer cells and less time for each, about a minute"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where to write 0.5 GB (default: the temp directory)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the curve, e.g. docs/images/bookie_reads.svg"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every number")
    return parser


if __name__ == "__main__":
    sys.exit(main())
