"""The page of a report: whole without a browser, and readable in one where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra pipeline, pip install magnetar[pipeline]")

from pipeline.jobs.page import html_of, write
from pipeline.jobs.plots import bars_plot, heat_map, lines_plot
from pipeline.jobs.report import Plot, Report, Table

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LIGHT = 24
"""Of 256: how dark a part of a page has to be to have something on it."""


def report() -> Report:
    import numpy as np

    rows: list[Mapping[str, str | float]] = [
        {"topic": f"<t{number}>", "hits": number * 1000, "ratio": number / 7} for number in range(60)
    ]
    svgs = [
        lines_plot({"a": ([1.0, 2.0], [0.5, 0.7])}, "MiB", "hit ratio", bars={"a": [0.1, 0.1]}),
        bars_plot({"x": 1.0, "y": 2.0}, "MiB"),
        heat_map(np.arange(6).reshape(2, 3), "x", "y", ["1", "2", "3"], ["1", "2"]),
    ]
    return Report(
        "example",
        "An example & more",
        ["first line", "second line"],
        {"rows": Table("Rows", rows, "A note.")},
        [Plot(f"Plot {number}", svg) for number, svg in enumerate(svgs)],
    )


class Balanced(HTMLParser):
    VOID = frozenset(("meta", "br", "hr", "img", "link", "input"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_escaped() -> None:
    text = html_of(report())
    page = Balanced()
    page.feed(text)
    assert page.open == []
    assert text.count("<svg") == 3
    assert "&lt;t1&gt;" in text
    assert "10 more rows are in the Parquet file." in text
    assert "<t1>" not in text
    assert text == html_of(report()), "the same report is the same page"


@pytest.mark.peer
def test_browser_renders_the_page(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a headless browser: one of {', '.join(BROWSERS)}")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    page = write(report(), tmp_path)
    shot = tmp_path / "page.png"
    subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--screenshot={shot}", "--window-size=1100,2400", page.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    image = pyplot.imread(shot)[:, :, :3].mean(axis=2) * 256
    assert image.shape == (2400, 1100)
    dark = image < 256 - LIGHT
    for top in range(0, 2000, 400):  # Text, three plots, the table: nothing of the page is empty.
        assert dark[top : top + 400].mean() > 0.002
    assert not dark[:, :20].any(), "no part is wider than the page"
