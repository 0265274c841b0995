"""`python -m bench.bookie_reads`: what cold readers cost a bookie, by policy of its read cache.

Three parts: the curve over the number of readers for three sizes of readahead, the table over the share of
the demand that the cache has room for, and what a writer notices of cold readers. Law of the place: all on
real entry logs that are dropped from the page cache; each cell is bounded in time, and printed when it is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.bookie_plot import plot
from bench.cold_readers import (
    LEDGERS,
    THRASHES_FROM,
    Cell,
    demand_bytes,
    measure,
    simulate,
    write_ledgers,
)
from bench.writer_beside import AddTimes, add_times
from bookie_stub.read_cache import POLICIES

KNEE_READERS = 16
"""The caches of the curve have room for so many readers, whatever the readahead."""
SHARE_READERS = 20
SHARE_BATCH = 50
TURNS = (1, 10)
PARTS = ("curve", "shares", "adds")


@dataclass(frozen=True, slots=True)
class Scale:
    readers: tuple[int, ...]
    batches: tuple[int, ...]
    shares: tuple[float, ...]
    entries: int
    """Of each of the LEDGERS ledgers."""
    cell_s: float
    """After which a cell that thrashes is ended."""
    adds_s: float


FULL = Scale(
    (1, 2, 4, 8, 12, 14, 15, 16, 17, 18, 20, 24, 32, 48, 64),
    (50, 100, 1000),
    (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0),
    3003,
    3.0,
    6.0,
)
QUICK = Scale((1, 8, 15, 18, 32, 64), (50, 1000), (0.5, 0.9, 1.25), 2002, 1.0, 2.0)


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    scale = QUICK if arguments.quick else FULL
    parts = arguments.only or PARTS
    began = time.monotonic()
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


@dataclass(slots=True)
class Results:
    curve: list[Cell]
    shares: list[tuple[int, float, Cell]]
    """Entries per turn, what the cache's rule alone gives, and what was measured."""
    adds: list[tuple[str, AddTimes]]

    def tables(self) -> list[str]:
        tables = [curve_table(self.curve, batch) for batch in sorted({cell.batch for cell in self.curve})]
        if self.shares:
            tables.append(share_table(self.shares))
        if self.adds:
            tables.append(add_table(self.adds))
        return tables

    def as_json(self) -> dict[str, object]:
        return {
            "curve": [cell._asdict() for cell in self.curve],
            "shares": [
                {"turn": turn, "simulated": simulated, **cell._asdict()}
                for turn, simulated, cell in self.shares
            ],
            "adds": [{"beside": name, **times._asdict()} for name, times in self.adds],
        }


async def _run(directory: Path, scale: Scale, parts: list[str]) -> Results:
    print(f"writing {LEDGERS} ledgers of {scale.entries:,} entries of 1 KiB", flush=True)
    await write_ledgers(directory, scale.entries)
    results = Results([], [], [])
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
        for name, policy in (
            ("nobody", None),
            *((f"16 cold readers, {policy}", policy) for policy in POLICIES),
        ):
            results.adds.append((name, await add_times(directory, scale.entries, policy, scale.adds_s)))
            print(f"adds beside {name}: {results.adds[-1][1]}", flush=True)
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


def curve_table(curve: list[Cell], batch: int) -> str:
    """Rows are numbers of readers; disk reads per entry and device bytes per byte for each policy."""
    cells = {(cell.policy, cell.readers): cell for cell in curve if cell.batch == batch}
    heads = ["readers", "share", *(f"{policy}: reads · bytes" for policy in POLICIES)]
    lines = [
        f"Readahead of {batch}, disk reads per entry · device bytes per byte:\n",
        _line(heads),
        _ruler(heads),
    ]
    for readers in sorted({readers for _, readers in cells}):
        row = [cells[policy, readers] for policy in POLICIES]
        lines.append(
            _line(
                [
                    str(readers),
                    f"{row[0].share:.2f}",
                    *(f"{cell.disk_reads_per_entry:.2f} · {cell.device_bytes_per_byte:.2f}" for cell in row),
                ]
            )
        )
    knees = (f"{policy} {knee(curve, policy, batch) or 'none'}" for policy in POLICIES)
    lines.append(
        f"\nFirst number of readers above {THRASHES_FROM:g} disk reads per entry"
        f" (the model: the first above {KNEE_READERS}): {', '.join(knees)}."
    )
    return "\n".join(lines)


def knee(curve: list[Cell], policy: str, batch: int) -> int | None:
    """The lowest number of readers from which on all measured ones thrash."""
    found = None
    for cell in sorted(curve, key=lambda cell: -cell.readers):
        if (cell.policy, cell.batch) == (policy, batch):
            if cell.disk_reads_per_entry <= THRASHES_FROM:
                break
            found = cell.readers
    return found


def share_table(shares: list[tuple[int, float, Cell]]) -> str:
    heads = ["entries in a row", "share", *(f"{policy}: rule · measured · bytes" for policy in POLICIES)]
    rows: dict[tuple[int, float], list[str]] = {}
    for turn, simulated, cell in shares:
        row = rows.setdefault((turn, round(cell.share, 2)), [])
        row.append(f"{simulated:.2f} · {cell.disk_reads_per_entry:.2f} · {cell.device_bytes_per_byte:.2f}")
    title = f"{SHARE_READERS} readers, readahead of {SHARE_BATCH}, disk reads per entry:\n"
    lines = [_line([str(turn), f"{share:.2f}", *row]) for (turn, share), row in rows.items()]
    return "\n".join([title, _line(heads), _ruler(heads), *lines])


def add_table(adds: list[tuple[str, AddTimes]]) -> str:
    heads = ["beside", "adds", "p50 ms", "p99 ms", "highest ms", "entries read/s", "disk reads per entry"]
    lines = [
        _line(
            [
                name,
                str(times.adds),
                f"{times.p50_ms:.2f}",
                f"{times.p99_ms:.2f}",
                f"{times.highest_ms:.1f}",
                f"{times.read_per_s:,.0f}",
                f"{times.disk_reads_per_entry:.1f}",
            ]
        )
        for name, times in adds
    ]
    return "\n".join(["500 adds of 1 KiB a second, synced:\n", _line(heads), _ruler(heads), *lines])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ruler(cells: list[str]) -> str:
    return _line(["---"] * len(cells))


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
        "--plot", type=Path, metavar="FILE", help="draw the curve, e.g. docs/bookie_reads.svg"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every number")
    return parser


if __name__ == "__main__":
    sys.exit(main())
