"""Draws the curve of `bench.bookie_reads`: disk reads per entry over the number of readers.

One panel for each readahead, a line for each read cache policy, and the step that the model predicts. Law: the same
numbers give the same file, so a picture in the repository changes only with them.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bench.cold_readers import Cell

COLOURS = {"ring": "#b5403a", "lru": "#c98a1b", "served-first": "#2b6f9e"}


def plot(curve: list[Cell], knee_readers: int, path: Path) -> None:
    """Draws the curve into `path` as SVG; `knee_readers` is the number of readers whose demand fits into the cache."""
    mpl.rcParams.update({"svg.hashsalt": "magnetar", "svg.fonttype": "none", "font.size": 9})
    batches = sorted({cell.batch for cell in curve})
    figure = Figure(figsize=(4 * len(batches), 3.8), layout="constrained")
    FigureCanvasSVG(figure)
    for panel, batch in zip(figure.subplots(1, len(batches), squeeze=False)[0], batches, strict=True):
        _draw(panel, [cell for cell in curve if cell.batch == batch], batch, knee_readers)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _draw(panel: Axes, cells: list[Cell], batch: int, knee_readers: int) -> None:
    most = max(cell.readers for cell in cells)
    panel.step(
        [1, knee_readers, most],
        [1, batch + 1, batch + 1],
        where="post",
        color="#999999",
        linestyle=":",
        label="model, equal speeds",
    )
    panel.axvline(knee_readers, color="#cccccc", linewidth=0.8)
    for policy, colour in COLOURS.items():
        line = sorted((cell.readers, cell.disk_reads_per_entry) for cell in cells if cell.policy == policy)
        panel.plot(*zip(*line, strict=True), color=colour, marker="o", markersize=3, label=policy)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_ylim(0.8, 2 * (batch + 1))
    panel.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    panel.set_title(f"readahead of {batch}")
    panel.set_xlabel("cold readers (room for 16)")
    panel.set_ylabel("disk reads per entry")
    panel.grid(visible=True, which="major", color="#eeeeee")
    panel.legend(frameon=False, loc="upper left")
