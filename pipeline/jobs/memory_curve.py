"""The curve of the hit ratio over the memory of the cache: its knee, and the saving of each further MiB.

Pure functions on the rows of a replayed grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from foundation.units import GIB, MIB
from pipeline.jobs.grid_rows import policy_name, settings_cells
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Table, bytes_text, percent
from pipeline.replays.grid import GridRow

NEAR: Final = 0.002
"""A hit ratio this little below the best counts as the best."""
SIZES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""The sizes of the curve, in sizes of the broker's own cache: its knee does not depend on a budget."""


class RecordedTraffic(NamedTuple):
    """The scale of a record: turns counts into rates and bytes into money."""

    seconds: float
    """The recorded time of a broker, the mean of all brokers; above 0."""
    brokers: int
    """Each of them has a cache of the given size."""
    price: float | None = None
    """Of one GiB of memory for a month; None = not given."""

    def per_second(self, count: float) -> float:
        """Returns the rate of a count over the record, of all brokers together."""
        return count / self.seconds

    def cost(self, size_bytes: int) -> float | None:
        """Returns the price of this cache on each broker for a month."""
        return None if self.price is None else self.price * size_bytes * self.brokers / GIB


def curve_sizes(own_bytes: int) -> list[int]:
    """Returns the sizes of the curve, each once, the smallest first."""
    return sorted({whole_mib(own_bytes * size) for size in SIZES})


def whole_mib(size_bytes: float) -> int:
    """Rounds to whole MiB, at least one: `managedLedgerCacheSizeMB` is a whole number, and 0 would be no cache."""
    return max(round(size_bytes / MIB), 1) * MIB


def smallest_near_best(rows: Sequence[GridRow]) -> GridRow:
    """Returns the smallest cache near the best hit ratio, then the one with the shortest time to live."""
    top = max(row.hit_ratio for row in rows)
    near = [row for row in rows if row.hit_ratio >= top - NEAR]
    return min(near, key=lambda row: (row.settings.size_bytes_max, row.settings.ttl_ns))


def best_by_size(rows: Sequence[GridRow]) -> list[GridRow]:
    """Returns the best row of each size, in the order of the sizes.

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
    """Returns the point of the curve that is farthest above the line from its first to its last point.

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


def saved_per_mib(smaller: GridRow, larger: GridRow, traffic: RecordedTraffic) -> float:
    """Returns the bookie reads per second that each MiB between two sizes saves."""
    more = (larger.settings.size_bytes_max - smaller.settings.size_bytes_max) / MIB
    return traffic.per_second(smaller.misses - larger.misses) / more if more else 0.0


def curves_of(rows: Sequence[GridRow]) -> dict[str, list[GridRow]]:
    """Returns the curve of each policy by its name."""
    by_policy: dict[str, list[GridRow]] = {}
    for row in rows:
        by_policy.setdefault(policy_name(row.settings), []).append(row)
    return {policy: best_by_size(of_policy) for policy, of_policy in by_policy.items()}


def curve_table(curves: Iterable[Sequence[GridRow]], knee: GridRow | None, traffic: RecordedTraffic) -> Table:
    """Returns a row per point of each curve: its reads from bookies, the saving of each further MiB, and its cost."""
    rows: list[dict[str, Cell]] = []
    for smaller, row in ((smaller, row) for curve in curves for smaller, row in pairwise((None, *curve))):
        assert row is not None
        cells: dict[str, Cell] = {
            "size_bytes": row.settings.size_bytes_max,
            "hit_ratio": row.hit_ratio,
            "bookie_reads_per_s": round(traffic.per_second(row.misses), 1),
            "saved_per_s_by_each_mib": None
            if smaller is None
            else round(saved_per_mib(smaller, row, traffic), 2),
            "policy": policy_name(row.settings),
            "ttl_ms": row.settings.ttl_ns // 1_000_000,
            "knee": row is knee,
        }
        cost = traffic.cost(row.settings.size_bytes_max)
        rows.append(cells if cost is None else {**cells, "cost_per_month": cost})
    note = (
        "Saved per s by each MiB: bookie reads per second that each MiB since the policy's size above saves."
    )
    return Table("Bookie reads that memory saves", rows, note)


def knee_lines(curve: Sequence[GridRow], traffic: RecordedTraffic) -> list[str]:
    """Returns lines about the knee, if there is one, and about the end of the curve."""
    knee, end = knee_of(curve), curve[-1]
    of_end = (
        f"end of the curve: {bytes_text(end.settings.size_bytes_max)}, hit ratio {percent(end.hit_ratio)}"
    )
    if knee is None:
        return [of_end]
    before = saved_per_mib(curve[0], knee, traffic)
    after = saved_per_mib(knee, curve[-1], traffic)
    return [
        f"knee of the curve of {policy_name(knee.settings)}: {bytes_text(knee.settings.size_bytes_max)}, hit ratio "
        f"{percent(knee.hit_ratio)}; up to it each "
        f"further MiB saves {before:,.1f} bookie reads/s, beyond it {after:,.1f}",
        of_end,
    ]


def marks_of(points: Mapping[str, GridRow | None]) -> dict[str, tuple[float, float]]:
    """Returns the places of named rows in a plot of the hit ratio over MiB.

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
    """Draws the best hit ratio of each size, a line per policy.

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


def traffic_of(seconds: float, brokers: int, price: float | None) -> RecordedTraffic:
    """Returns the scale of a record; at least a millisecond long."""
    return RecordedTraffic(max(seconds, 0.001), brokers, price)
