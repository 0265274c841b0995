"""The numbers of `bench.bookie_reads` as tables in Markdown.

Law: pure functions; each table says above its rows how they were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.cold_readers import Cell
from bench.writer_beside import ADDS_PER_S, AddTimes
from bookie_stub.disk.read_cache import POLICIES

KNEE_READERS = 16
"""Readers whose demand fits into the caches of the curve, for each readahead."""
THRASHES_FROM = 2.0
"""Disk reads per entry from which on the knee counts as passed."""
SHARE_READERS = 20
SHARE_BATCH = 50


@dataclass(slots=True)
class Results:
    """All measured cells of the three parts."""

    curve: list[Cell]
    shares: list[tuple[int, float, Cell]]
    """Entries per turn, disk reads per entry by the cache's rule alone, and the measured cell."""
    adds: dict[str, AddTimes]
    """Latencies by the load beside the writer."""

    def tables(self) -> list[str]:
        """Returns the tables of the parts that were measured."""
        tables = []
        if self.curve:
            tables += [curve_table(self.curve, "disk_reads_per_entry"), knees(self.curve)]
            tables.append(curve_table(self.curve, "device_bytes_per_byte"))
        if self.shares:
            tables.append(share_table(self.shares))
        if self.adds:
            tables.append(add_table(self.adds))
        return tables

    def as_json(self) -> dict[str, object]:
        """Returns every number, for `--json`."""
        return {
            "curve": [cell._asdict() for cell in self.curve],
            "shares": [
                {"turn": turn, "simulated": simulated, **cell._asdict()}
                for turn, simulated, cell in self.shares
            ],
            "adds": [{"beside": name, **times._asdict()} for name, times in self.adds.items()],
        }


TITLES = {
    "disk_reads_per_entry": "Disk reads per entry",
    "device_bytes_per_byte": "Bytes from the device per byte served",
}


def curve_table(curve: list[Cell], what: str) -> str:
    """Returns a row per number of readers; for each readahead the policies side by side. `what` is a field of `Cell`."""
    batches = sorted({cell.batch for cell in curve})
    heads = ["readers", "share", *(f"{batch}: {' · '.join(POLICIES)}" for batch in batches)]
    lines = [f"{TITLES[what]}:\n", _line(heads), _ruler(heads)]
    for readers in sorted({cell.readers for cell in curve}):
        cells = {(cell.batch, cell.policy): cell for cell in curve if cell.readers == readers}
        share = cells[batches[0], "ring"].share
        values = (
            " · ".join(_rounded(getattr(cells[batch, policy], what)) for policy in POLICIES)
            for batch in batches
        )
        lines.append(_line([str(readers), f"{share:.2f}", *values]))
    return "\n".join(lines)


def _rounded(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def knees(curve: list[Cell]) -> str:
    """Returns a line per readahead with each policy's knee."""
    lines = [
        f"Readers from which on there are more than {THRASHES_FROM:g} disk reads per entry;"
        f" the model says {KNEE_READERS + 1}:\n"
    ]
    for batch in sorted({cell.batch for cell in curve}):
        found = (f"{policy} {knee(curve, policy, batch) or 'none'}" for policy in POLICIES)
        lines.append(f"readahead of {batch}: {', '.join(found)}")
    return "\n".join(lines)


def knee(curve: list[Cell], policy: str, batch: int) -> int | None:
    """Returns the lowest number of readers from which on all measured numbers thrash; None without one."""
    found = None
    for cell in sorted(curve, key=lambda cell: -cell.readers):
        if (cell.policy, cell.batch) == (policy, batch):
            if cell.disk_reads_per_entry <= THRASHES_FROM:
                break
            found = cell.readers
    return found


def share_table(shares: list[tuple[int, float, Cell]]) -> str:
    """Returns a row per turn and share: simulated, measured, and bytes from the device."""
    heads = ["entries in a row", "share", *(f"{policy}: rule · measured · bytes" for policy in POLICIES)]
    rows: dict[tuple[int, float], list[str]] = {}
    for turn, simulated, cell in shares:
        row = rows.setdefault((turn, round(cell.share, 2)), [])
        row.append(f"{simulated:.2f} · {cell.disk_reads_per_entry:.2f} · {cell.device_bytes_per_byte:.2f}")
    title = f"{SHARE_READERS} readers, readahead of {SHARE_BATCH}, disk reads per entry:\n"
    lines = [_line([str(turn), f"{share:.2f}", *row]) for (turn, share), row in rows.items()]
    return "\n".join([title, _line(heads), _ruler(heads), *lines])


def add_table(adds: dict[str, AddTimes]) -> str:
    """Returns a row per kind of load beside the writer."""
    heads = [
        "beside",
        "p50 ms",
        "p99 ms",
        "highest ms",
        "its fdatasync p50 ms",
        "entries read/s",
        "disk reads per entry",
    ]
    lines = [
        _line(
            [
                name,
                f"{times.p50_ms:.2f}",
                f"{times.p99_ms:.2f}",
                f"{times.highest_ms:.1f}",
                f"{times.sync_p50_ms:.2f}",
                f"{times.read_per_s:,.0f}",
                f"{times.disk_reads_per_entry:.1f}",
            ]
        )
        for name, times in adds.items()
    ]
    return "\n".join(
        [
            f"{ADDS_PER_S} adds of 1 KiB a second, synced, until the answer:\n",
            _line(heads),
            _ruler(heads),
            *lines,
        ]
    )


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ruler(cells: list[str]) -> str:
    return _line(["---"] * len(cells))
