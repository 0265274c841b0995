"""Draws plots as SVG text for a page, with matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

mpl.use("svg")
from matplotlib import pyplot

Line = tuple[Sequence[float], Sequence[float]]
"""The x and the y of each point."""


def _svg(figure: Any) -> str:
    """Return the element `<svg>`, the same text for the same plot."""
    out = io.StringIO()
    # Without a fixed salt matplotlib draws new ids, and equal reports would differ.
    with mpl.rc_context({"svg.hashsalt": "magnetar"}):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    # pyplot keeps every figure until it is closed.
    pyplot.close(figure)
    found = re.search(r"<svg.*</svg>", out.getvalue(), re.S)
    assert found is not None
    return found[0]


def lines_plot(
    lines: Mapping[str, Line],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    bars: Mapping[str, Sequence[float]] | None = None,
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Draw named lines.

    `bars`: for a line, half the height of each point's error bar; `marks`: named single points.
    """
    figure, axes = pyplot.subplots(figsize=(8, 3.8))
    for name, (xs, ys) in lines.items():
        errors = (bars or {}).get(name)
        if errors is None:
            axes.plot(xs, ys, marker="o" if len(xs) < 40 else None, markersize=3.5, label=name)
        else:
            axes.errorbar(xs, ys, yerr=errors, marker="o", markersize=3.5, capsize=3, label=name)
    for name, (at, height) in (marks or {}).items():
        axes.plot([at], [height], marker="D", linestyle="none", label=name)
    if log_x:
        axes.set_xscale("log", base=2)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return _svg(figure)


def bars_plot(values: Mapping[str, float], x: str) -> str:
    """Draw named horizontal bars, the first at the top."""
    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.32 * max(len(values), 1)))
    names = list(values)
    axes.barh(names[::-1], [values[name] for name in names[::-1]])
    axes.set_xlabel(x)
    axes.grid(axis="x", alpha=0.3)
    return _svg(figure)


def heat_map(
    counts: NDArray[np.int64], x: str, y: str, x_names: Sequence[str], y_names: Sequence[str]
) -> str:
    """Draw `counts` by row (y) and column (x); zeros stay white."""
    figure, axes = pyplot.subplots(figsize=(8, 4))
    shown = np.ma.masked_equal(counts, 0)
    image = axes.imshow(shown, origin="lower", aspect="auto", norm="log" if counts.max() > 0 else None)
    axes.set_xticks(range(len(x_names)), x_names, rotation=60, fontsize=7)
    axes.set_yticks(range(len(y_names)), y_names, fontsize=7)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    figure.colorbar(image, label="entries read")
    return _svg(figure)
