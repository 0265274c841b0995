"""Draws plots as SVG text for a page, with matplotlib.

Black becomes the page's text colour and the ground stays clear, so that a plot suits light and dark pages.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from math import ceil, log2
from statistics import median
from typing import Any, Final, Literal

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

mpl.use("svg")
from matplotlib import dates, pyplot
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullLocator

from foundation.units import SECONDS_PER_DAY
from pipeline.jobs.report import bytes_text

Line = tuple[Sequence[float], Sequence[float]]
"""The x and the y of each point."""
Scale = Literal["number", "size", "time", "ratio"]
"""The values of an axis: numbers, MiB, seconds since 1970 (shown as a UTC clock), or shares of 1."""
_WIDE: Final = 5.4
"""Inches. Wider plots have letters that are too small on a phone."""
_with_letters: Final = mpl.rc_context({"font.size": 11, "legend.fontsize": 10})
"""Decorator that draws with letters which have 11 pixels on a phone of 390, where a plot is scaled down to its width."""
_NAMES_MAX: Final = 12
"""Names at an axis of a heat map at most; others are left out in turn."""
_FLATTENS: Final = 20
"""A value so many times the median makes the axis logarithmic: on a linear one all others would be a flat line."""
_SAME: Final = 0.001
"""Lines that differ by less than this share of the axis are drawn as one, with both names."""
_COLOURS: Final = ("#4c8bc4", "#e8842a", "#3f9f57", "#d9534f", "#9b6fc0", "#8c6d5a", "#d478b0", "#8a8f98")
_DASHES: Final = ("-", "--", "-.", ":")
_MARKERS: Final = ("o", "s", "^", "v", "D", "P", "X", "*")
_MARKS: Final = ("D", "*", "X")


def _svg(figure: Any) -> str:
    """Returns the element `<svg>`, the same text for the same plot."""
    out = io.StringIO()
    # Without a fixed salt matplotlib draws new ids, and equal reports would differ. Letters stay letters, so that the
    # page's colours and a search in the page reach them.
    with mpl.rc_context({"svg.hashsalt": "magnetar", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True)
    # pyplot keeps every figure until it is closed.
    pyplot.close(figure)
    found = re.search(r"<svg.*</svg>", out.getvalue(), re.S)
    assert found is not None
    return found[0].replace("#000000", "currentColor")


@_with_letters
def lines_plot(
    lines: Mapping[str, Line],
    x: str,
    y: str,
    *,
    x_scale: Scale = "number",
    y_scale: Scale = "number",
    log_x: bool = False,
    bars: Mapping[str, Sequence[float]] | None = None,
    marks: Mapping[str, tuple[float, float]] | None = None,
    limit_x: float | None = None,
) -> str:
    """Draws named lines.

    `bars`: for a line, half the height of each point's error bar; `marks`: named single points; `limit_x`: a vertical
    line.
    """
    figure, axes = pyplot.subplots(figsize=(_WIDE, 3.3))
    days = SECONDS_PER_DAY if x_scale == "time" else 1
    for at, (name, (xs, ys)) in enumerate(merged(lines).items()):
        # Width, dash and marker differ as well as the colour: where lines cross or lie close, both stay visible.
        style: dict[str, Any] = {
            "color": _COLOURS[at % len(_COLOURS)],
            "linestyle": _DASHES[at % len(_DASHES)],
            "linewidth": max(2.6 - 0.35 * at, 1.2),
            "marker": _MARKERS[at % len(_MARKERS)] if len(xs) < 40 else None,
            "markersize": 4,
            "label": name,
        }
        errors: Any = next(
            (values for part, values in (bars or {}).items() if part in name.split(" = ")), None
        )
        if errors is not None and y_scale == "ratio":
            # No ratio is below 0 or above 1: such ends of the bars would flatten the lines.
            errors = [np.minimum(errors, ys), np.minimum(errors, 1 - np.array(ys))]
        axes.errorbar([value / days for value in xs], ys, yerr=errors, capsize=3, **style)
    _draw_marks(axes, marks or {}, days)
    if limit_x is not None:
        axes.axvline(limit_x, color="#8a8f98", linestyle="--", linewidth=1, label="budget")
    if log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    _scale(axes.xaxis, x_scale)
    axes.set_xlabel(x)
    flat = y_scale != "ratio" and flattens([value for _, ys in lines.values() for value in ys])
    if flat:
        axes.set_yscale("log")
    _scale(axes.yaxis, y_scale, log=flat)
    axes.set_ylabel(f"{y} (log scale)" if flat else y)
    axes.grid(alpha=0.3)
    if len(lines) + len(marks or {}) > 1:
        # Above the plot, where it covers no line.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False, borderaxespad=0.2)
    return _svg(figure)


def _draw_marks(axes: Any, marks: Mapping[str, tuple[float, float]], unit: float) -> None:
    """Draws named single points; `unit`: x values of one unit of the axis."""
    for at, (name, (place, height)) in enumerate(marks.items()):
        marker = _MARKS[at % len(_MARKS)]
        axes.plot(
            [place / unit],
            [height],
            marker=marker,
            # Empty and of different shapes, so that several marks of one point are all seen.
            markersize=9 + 2 * (at % len(_MARKS)),
            markerfacecolor="none",
            markeredgewidth=1.8,
            color="#d9534f",
            linestyle="none",
            zorder=5,  # In front of the line that has the point.
            label=name,
        )


def merged(lines: Mapping[str, Line]) -> dict[str, Line]:
    """Returns the lines with those that coincide as one, named "first = second"."""
    highest = max((abs(value) for _, ys in lines.values() for value in ys), default=0.0)
    found: dict[str, Line] = {}
    for name, (xs, ys) in lines.items():
        for other, (other_xs, other_ys) in found.items():
            if list(xs) == list(other_xs) and np.allclose(ys, other_ys, rtol=0, atol=highest * _SAME):
                found = {f"{one} = {name}" if one == other else one: line for one, line in found.items()}
                break
        else:
            found[name] = (xs, ys)
    return found


def flattens(values: Sequence[float]) -> bool:
    """Returns True if few of the values, all above 0, are so large that the others would look like a flat line."""
    return bool(values) and min(values) > 0 and max(values) > _FLATTENS * median(values)


def _scale(axis: Any, scale: Scale, *, log: bool = False) -> None:
    """Writes the axis in the unit of its values."""
    if scale == "time":
        # With the default of five ticks at least, four days would need more than five, and matplotlib warns.
        locator = dates.AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
        axis.set_major_locator(locator)
        axis.set_major_formatter(
            dates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
                locator, formats=["%Y", "%m-%d", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"], show_offset=False
            )
        )
    elif scale == "size":
        if axis.get_scale() == "linear":
            low, high = axis.get_view_interval()
            # Steps of a power of two, so that marks are at 256 KiB and 8 MiB and not at 205 KiB.
            axis.set_major_locator(MultipleLocator(2.0 ** ceil(log2(max(high - low, 1e-6) / 6))))
        axis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value * (1 << 20))))
    elif scale == "ratio":
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    elif log or axis.get_scale() == "log":
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


@_with_letters
def bars_plot(values: Mapping[str, float], x: str, scale: Scale = "number") -> str:
    """Draws named horizontal bars, the first at the top."""
    figure, axes = pyplot.subplots(figsize=(_WIDE, 0.7 + 0.32 * max(len(values), 1)))
    names = list(values)
    axes.barh(names[::-1], [values[name] for name in names[::-1]], color=_COLOURS[0])
    flat = scale != "ratio" and flattens(list(values.values()))
    if flat:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    _scale(axes.xaxis, scale, log=flat)
    axes.set_xlabel(f"{x} (log scale)" if flat else x)
    axes.grid(axis="x", alpha=0.3)
    return _svg(figure)


@_with_letters
def heat_map(
    counts: NDArray[np.int64], x: str, y: str, x_names: Sequence[str], y_names: Sequence[str]
) -> str:
    """Draws `counts` by row (y) and column (x); zeros stay clear."""
    figure, axes = pyplot.subplots(figsize=(_WIDE, 3.8))
    shown = np.ma.masked_equal(counts, 0)
    image = axes.imshow(shown, origin="lower", aspect="auto", norm="log" if counts.max() > 0 else None)
    for set_ticks, names, angle in ((axes.set_xticks, x_names, 60), (axes.set_yticks, y_names, 0)):
        step = -(-len(names) // _NAMES_MAX)
        set_ticks(range(0, len(names), step), names[::step], rotation=angle)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    numbers = FuncFormatter(lambda value, _: f"{value:,g}")
    figure.colorbar(image, label="entries read", format=numbers)
    return _svg(figure)
