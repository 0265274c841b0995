"""Compares the recommendation for all brokers with each broker's own needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.jobs.grid_rows import policy_name
from pipeline.jobs.memory_curve import NEAR
from pipeline.jobs.report import Cell, Report, Table, shown
from pipeline.replays.grid import GridRow

DIFFERS: Final = 0.01
"""A broker that other settings would give so much more hit ratio gets a line of its own."""
_SHOWN: Final = 10
"""Lines about brokers in the text; the table has all brokers."""


def add_brokers(report: Report, present: GridRow, fleet: GridRow, rows: Sequence[GridRow]) -> None:
    """Adds the table of `fleet_table` and its lines to a report on several brokers; nothing to one on a single broker."""
    table = fleet_table(present, fleet, rows)
    if len(table.rows) > 1:
        report.tables["brokers"] = table
        report.text += ["", *fleet_lines(table)]


def own_best(rows: Sequence[GridRow], broker: str) -> GridRow:
    """Returns the smallest cache near the best hit ratio of one broker."""
    top = max(row.brokers[broker].hit_ratio for row in rows)
    near = [row for row in rows if row.brokers[broker].hit_ratio >= top - NEAR]
    return min(near, key=lambda row: (row.settings.size_bytes_max, row.settings.ttl_ns))


def difference(fleet: GridRow, own: GridRow, broker: str) -> str:
    """Returns "more", "less" or "" for a broker under the fleet's settings.

    "more": its own best settings bring DIFFERS more hit ratio. "less": half the fleet's memory is as good for it.
    """
    gain = own.brokers[broker].hit_ratio - fleet.brokers[broker].hit_ratio
    if gain > DIFFERS:
        return "more"
    half = own.settings.size_bytes_max * 2 <= fleet.settings.size_bytes_max
    return "less" if half and gain >= -NEAR else ""


def fleet_table(present: GridRow, fleet: GridRow, rows: Sequence[GridRow]) -> Table:
    """Returns a row per broker; those that differ from the fleet come first, then those with most bookie reads."""
    cells: list[dict[str, Cell]] = []
    for broker, counts in fleet.brokers.items():
        own = own_best([*rows, fleet], broker)
        cells.append(
            {
                "broker": broker,
                "differs": difference(fleet, own, broker),
                "hit_ratio_now": present.brokers[broker].hit_ratio,
                "hit_ratio_fleet": counts.hit_ratio,
                "hit_ratio_own": own.brokers[broker].hit_ratio,
                "size_own_bytes": own.brokers[broker].settings.size_bytes_max,
                "ttl_ms_own": own.brokers[broker].settings.ttl_ns // 1_000_000,
                "policy_own": policy_name(own.brokers[broker].settings),
                "bookie_reads_now": present.brokers[broker].misses,
                "peak_fleet_bytes": counts.peak_bytes,
            }
        )
    cells.sort(key=lambda row: (not row["differs"], -int(str(row["bookie_reads_now"]))))
    note = "fleet: with the recommended settings; own: with those that fit this broker best, of all that were tried."
    return Table("Brokers under the fleet's settings", cells, note, 500)


def fleet_lines(table: Table) -> list[str]:
    """Returns a line per broker that differs, for more than one broker."""
    if len(table.rows) < 2:
        return []
    differing = [row for row in table.rows if row["differs"]]
    if not differing:
        return [f"the settings fit all {len(table.rows)} brokers"]
    if all(row["differs"] == "less" for row in table.rows):
        largest = max(int(str(row["size_own_bytes"])) for row in table.rows)
        return [f"{shown(largest, 'bytes')} are as good for each of the {len(table.rows)} brokers"]
    verb = "differs" if len(differing) == 1 else "differ"
    lines = [f"{len(differing)} of {len(table.rows)} brokers {verb} from the fleet:"]
    lines += [
        f"  {row['broker']} needs {row['differs']}: {shown(row['size_own_bytes'], 'bytes')}, "
        f"{shown(row['ttl_ms_own'], 'ttl_ms')}, {row['policy_own']}: "
        f"hit ratio {shown(row['hit_ratio_fleet'], 'ratio')} -> {shown(row['hit_ratio_own'], 'ratio')}"
        for row in differing[:_SHOWN]
    ]
    left = len(differing) - _SHOWN
    return lines + ([f"  … and {left} more in the table of brokers"] if left > 0 else [])
