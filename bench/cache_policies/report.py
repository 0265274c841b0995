"""The table and the plots of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bench.cache_policies.simulation import Outcome

BEGIN, END = "<!-- policies: begin -->", "<!-- policies: end -->"
OVERSHOOT_SHOWN = 1.1
"""Peak by size above which a cell says how far the size was exceeded."""


class Cell(NamedTuple):
    """One policy on one workload with one size, over all seeds."""

    workload: str
    memory: float
    """Size in parts of the workload's base size."""
    policy: str
    ratios: list[float]
    """Hit ratio of each seed."""
    peak: float
    """Bytes held at most, in parts of the size."""
    held: list[float]
    """Entries cached, once per tenth of a second, of the first seed."""

    @property
    def hit_ratio(self) -> float:
        """Mean over the seeds."""
        return sum(self.ratios) / len(self.ratios)


def cell_of(workload: str, memory: float, policy: str, size_bytes: int, outcomes: Sequence[Outcome]) -> Cell:
    """Summarizes the simulations of all seeds; `size_bytes` is the size of the cache."""
    return Cell(
        workload,
        memory,
        policy,
        [outcome.hit_ratio for outcome in outcomes],
        max(outcome.peak_bytes for outcome in outcomes) / size_bytes,
        [float(count) for count in outcomes[0].held],
    )


def table(cells: Iterable[Cell], policies: Sequence[str]) -> str:
    """Returns Markdown: percent of consumed entries without a storage read, and how far the size was exceeded.

    Bold is the best of the policies that kept the size.
    """
    rows: dict[tuple[str, float], dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.workload, cell.memory), {})[cell.policy] = cell
    lines = [
        "| workload | size | " + " | ".join(policies) + " |",
        "|---|---|" + "---|" * len(policies),
    ]
    for (workload, memory), row in rows.items():
        kept = [cell for cell in row.values() if cell.peak <= OVERSHOOT_SHOWN]
        best = max((round(100 * cell.hit_ratio, 1) for cell in kept), default=0.0)
        texts = [_text(row[name], best) for name in policies if name in row]
        lines.append(f"| {workload} | {memory:g} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _text(cell: Cell, best: float) -> str:
    value = round(100 * cell.hit_ratio, 1)
    if cell.peak > OVERSHOOT_SHOWN:
        return f"{value:.1f} (held {cell.peak:.1f} times the size)"
    return f"**{value:.1f}**" if value == best else f"{value:.1f}"


def write_into(page: Path, text: str) -> None:
    """Replaces the text between the marks of a page. ValueError where they are missing."""
    whole = page.read_text()
    if BEGIN not in whole or END not in whole:
        raise ValueError(f"{page} lacks the lines {BEGIN} and {END}")
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def plots(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draws hit ratio over memory, and entries held over time at the base size; returns the files."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "magnetar"  # The same numbers give the same file.
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    written = []
    for name, ylabel in (("hit_ratio", "hit ratio, %"), ("held", "entries held")):
        columns = 4
        rows = -(-len(workloads) // columns)
        figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False)
        for axis, workload in zip(axes.flat, workloads, strict=False):
            for policy in policies:
                own = [cell for cell in cells if (cell.workload, cell.policy) == (workload, policy)]
                if name == "hit_ratio":
                    axis.plot(
                        [c.memory for c in own], [100 * c.hit_ratio for c in own], marker="o", label=policy
                    )
                    axis.set_xscale("log", base=2)
                    axis.set_xlabel("size")
                else:
                    base = next((cell for cell in own if cell.memory == 1.0), own[-1])
                    axis.plot([0.1 * step for step in range(len(base.held))], base.held, label=policy)
                    axis.set_xlabel("seconds")
            axis.set_title(workload)
            axis.set_ylabel(ylabel)
        for axis in list(axes.flat)[len(workloads) :]:
            axis.set_visible(False)
        axes.flat[0].legend(fontsize="small")
        figure.tight_layout()
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"cache_policies_{name}.svg")
        figure.savefig(written[-1], metadata={"Date": None})
        pyplot.close(figure)
    return written
