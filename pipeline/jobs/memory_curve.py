"""The curve of the hit ratio over the memory of the cache: its knee, and the saving of each further MiB.

Pure functions on the rows of a replayed grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.jobs.grid_rows import policy_name, settings_cells
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Table, bytes_text, percent
from pipeline.replays.grid import GridRow

NEAR: Final = 0.002
"""A hit ratio this little below the best counts as the best."""
MIB: Final = 1 << 20
_GIB: Final = 1 << 30


class Traffic(NamedTuple):
    """The scale of a record: turns counts into rates and bytes into money."""

    seconds: float
    """The recorded time of a broker, the mean of all brokers; above 0."""
    brokers: int
    """Each of them has a cache of the given size."""
    price: float | None = None
    """Of one GiB of memory for a month; None = not given."""

    def per_second(self, count: float) -> float:
        """Return the rate of a count over the record, of all brokers together."""
        return count / self.seconds

    def cost(self, size_bytes: int) -> float | None:
        """Return the price of this cache on each broker for a month."""
        return None if self.price is None else self.price * size_bytes * self.brokers / _GIB


def smallest_near_best(rows: Sequence[GridRow]) -> GridRow:
    """Return the smallest cache near the best hit ratio, then the one with the shortest time to live."""
    top = max(row.hit_ratio for row in rows)
    near = [row for row in rows if row.hit_ratio >= top - NEAR]
    return min(near, key=lambda row: (row.settings.size_bytes_max, row.settings.ttl_ns))


def best_by_size(rows: Sequence[GridRow]) -> list[GridRow]:
    """Return the best row of each size, in the order of the sizes.

    A larger cache may be filled by a bad time to live; a row below that of a smaller size is left out.
    """
    by_size: dict[int, list[GridRow]] = {}
    for row in rows:
        by_size.setdefault(row.settings.size_bytes_max, []).append(row)
    found: list[GridRow] = []
    for size in sorted(by_size):
        row = smallest_near_best(by_size[size])
        if not found or row.hit_ratio >= found[-1].hit_ratio - NEAR:
            found.append(row)
    return found


def knee_of(curve: Sequence[GridRow]) -> GridRow | None:
    """Return the point of the curve that is farthest above the line from its first to its last point.

    None for fewer than three points and for a curve without a bend.
    """
    if len(curve) < 3:
        return None
    first, last = curve[0], curve[-1]
    width = last.settings.size_bytes_max - first.settings.size_bytes_max
    height = last.hit_ratio - first.hit_ratio

    def above(row: GridRow) -> float:
        part = (row.settings.size_bytes_max - first.settings.size_bytes_max) / width
        return row.hit_ratio - first.hit_ratio - part * height

    found = max(curve, key=above)
    return found if above(found) > NEAR else None


def saved_per_mib(smaller: GridRow, larger: GridRow, traffic: Traffic) -> float:
    """Return the bookie reads per second that each MiB between two sizes saves."""
    more = (larger.settings.size_bytes_max - smaller.settings.size_bytes_max) / MIB
    return traffic.per_second(smaller.misses - larger.misses) / more if more else 0.0


def curve_table(curve: Sequence[GridRow], traffic: Traffic) -> Table:
    """Return a row per point: its reads from bookies, the saving of each further MiB, and its cost."""
    knee = knee_of(curve)
    rows: list[dict[str, Cell]] = []
    for at, row in enumerate(curve):
        cells: dict[str, Cell] = {
            "size_bytes": row.settings.size_bytes_max,
            "hit_ratio": row.hit_ratio,
            "bookie_reads_per_s": round(traffic.per_second(row.misses), 1),
            "saved_per_s_by_each_mib": round(saved_per_mib(curve[at - 1], row, traffic), 2) if at else None,
            "policy": policy_name(row.settings),
            "ttl_ms": row.settings.ttl_ns // 1_000_000,
            "knee": row is knee,
        }
        cost = traffic.cost(row.settings.size_bytes_max)
        rows.append(cells if cost is None else {**cells, "cost_per_month": cost})
    note = "Saved per s by each MiB: bookie reads per second that each MiB since the line above saves."
    return Table("Bookie reads that memory saves", rows, note)


def knee_lines(curve: Sequence[GridRow], traffic: Traffic) -> list[str]:
    """Return a line about the knee, if there is one."""
    knee = knee_of(curve)
    if knee is None:
        return []
    before = saved_per_mib(curve[0], knee, traffic)
    after = saved_per_mib(knee, curve[-1], traffic)
    return [
        f"knee of the curve: {bytes_text(knee.settings.size_bytes_max)}, hit ratio {percent(knee.hit_ratio)}; up to it each "
        f"further MiB saves {before:,.1f} bookie reads/s, beyond it {after:,.1f}"
    ]


def marks_of(points: Mapping[str, GridRow | None]) -> dict[str, tuple[float, float]]:
    """Return the places of named rows in a plot of the hit ratio over MiB.

    Rows that do not exist are left out, and those of brokers with different sizes, which have no place.
    """
    return {
        name: (row.settings.size_bytes_max / MIB, row.hit_ratio)
        for name, row in points.items()
        if row is not None and settings_cells(row)["size_bytes"] is not None
    }


def curve_plot(
    curves: Mapping[str, Sequence[GridRow]],
    marks: Mapping[str, tuple[float, float]],
    limit_bytes: int | None = None,
) -> Plot:
    """Draw the best hit ratio of each size, a line per policy.

    `marks`: named single points. `limit_bytes`: the budget, a vertical line.
    """
    lines = {
        name: ([row.settings.size_bytes_max / MIB for row in curve], [row.hit_ratio for row in curve])
        for name, curve in curves.items()
    }
    limit = None if limit_bytes is None else limit_bytes / MIB
    svg = lines_plot(
        lines,
        "cache size",
        "hit ratio",
        x_scale="size",
        y_scale="ratio",
        log_x=True,
        marks=marks,
        limit_x=limit,
    )
    return Plot("Hit ratio over memory", svg, "Each point has the best time to live of its size.")


def traffic_of(seconds: float, brokers: int, price: float | None) -> Traffic:
    """Return the scale of a record; at least a millisecond long."""
    return Traffic(max(seconds, 0.001), brokers, price)
