"""The page of a report: whole without a browser, and readable in one where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra pipeline, pip install WHEEL[pipeline]")

from pipeline.jobs.page import html_of, rows_of, write
from pipeline.jobs.plots import bars_plot, flattens, heat_map, lines_plot, merged
from pipeline.jobs.report import Plot, Report, Table, TableRow, bytes_text, time_text

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


def test_page_says_a_value_of_all_rows_once_and_names_units() -> None:
    rows: list[TableRow] = [
        {"topic": "a", "hit_ratio": 0.5, "bytes": 8 << 20, "policy": "pip430", "new": None},
        {"topic": "b", "hit_ratio": 0.25, "bytes": 512, "policy": "pip430", "new": 3},
    ]
    text = html_of(Report("one", "One", ["said once"], {"rows": Table("Rows", rows)}, listed={"rows": 5}))
    assert text.count("pip430") == 1
    assert "In all rows: policy pip430." in text
    for wanted in ("8 MiB", "512 B", "50.00 %", ' class="n">-</td>'):
        assert wanted in text
    assert text.count("said once") == 1


def test_page_keeps_counts_that_happen_to_be_equal_and_the_spelling_of_keys() -> None:
    rows: list[TableRow] = [
        {
            "topic": topic,
            "evicted by size": 17960,
            "coalesced": 0,
            "ttl_ms": 1000,
            "dbStorage_readAheadCacheBatchSize": 5 + at,
        }
        for at, topic in enumerate("ab")
    ]
    text = html_of(Report("one", "One", tables={"rows": Table("Rows", rows)}))
    assert text.count(">17,960<") == 2, "a result is shown with its row"
    assert "In all rows: coalesced 0, ttl 1 s." in text
    assert "db<wbr>Storage_<wbr>read<wbr>Ahead<wbr>Cache<wbr>Batch<wbr>Size" in text


def test_report_lists_its_tables_for_a_terminal_alone() -> None:
    rows: list[TableRow] = [{"topic": "a", "misses": 1600}]
    one = Report("one", "One", ["first"], {"rows": Table("Rows", rows)}, listed={"rows": 5})
    assert one.lines() == ["first", "", "topic  misses", "a       1,600"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1 << 10, "1 KiB"),
        (99_638, "97.3 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (8 << 20, "8 MiB"),
        (11_220_000, "10.7 MiB"),
        (1 << 40, "1 TiB"),
    ],
)
def test_bytes_are_named_in_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_lines_that_coincide_are_one_line_with_both_names() -> None:
    line = ([1.0, 2.0], [0.5, 0.7])
    found = merged({"1 s": line, "3 s": line, "10 s": ([1.0, 2.0], [0.5, 0.9]), "60 s": line})
    assert list(found) == ["1 s = 3 s = 60 s", "10 s"]
    svg = lines_plot({"1 s": line, "3 s": line}, "cache size", "hit ratio", x_scale="size", y_scale="ratio")
    for wanted in ("1 s = 3 s", "MiB", "currentColor"):
        assert wanted in svg
    assert "#000000" not in svg, "black letters cannot be read on a dark page"


def test_one_large_value_makes_the_axis_logarithmic() -> None:
    assert flattens([1.0, 1.2, 1.1, 1600.0])
    assert not flattens([1.0, 2.0, 3.0, 16.0])
    assert not flattens([0.0, 1.0, 1600.0]), "a logarithm has no place for 0"
    svg = lines_plot({"a": ([1.0, 2.0, 3.0], [1.0, 1.2, 1600.0])}, "readahead", "entries")
    assert "entries (log scale)" in svg


def test_error_bars_of_ratios_end_at_0_and_1() -> None:
    svg = lines_plot(
        {"a": ([1.0, 2.0], [0.9, 0.1])}, "x", "miss ratio", y_scale="ratio", bars={"a": [0.5, 0.6]}
    )
    ticks = [float(text) for text in re.findall(r">(-?[\d.]+) %<", svg)]
    assert ticks
    assert min(ticks) >= 0
    assert max(ticks) <= 100


def test_time_axis_has_clock_times() -> None:
    begin = 1_795_324_715.0  # 2026-11-22 05:18:35 UTC
    svg = lines_plot(
        {"a": ([begin, begin + 30], [1.0, 2.0])}, "UTC", "cached", x_scale="time", y_scale="size"
    )
    assert "05:18:40" in svg
    assert re.search(r">\d(\.\d)? MiB<", svg)


def test_time_axis_repeats_no_label_within_a_second() -> None:
    svg = lines_plot({"a": ([1.795e9, 1.795e9 + 2], [1.0, 2.0])}, "UTC", "cached", x_scale="time")
    labels = re.findall(r">(\d\d:\d\d:\d\d[.\d]*)<", svg)
    assert len(labels) == len(set(labels)) > 2


def test_axis_of_numbers_has_no_powers() -> None:
    svg = lines_plot({"a": ([16.0, 2048.0], [1.0, 2.0])}, "readahead", "entries", log_x=True)
    assert ">1,024<" in svg


@pytest.mark.parametrize(
    ("ms", "text"), [(250, "250 ms"), (1500, "1.5 s"), (60_000, "1 min"), (3_600_000, "1 h"), (0.5, "0.5 ms")]
)
def test_times_are_named_in_the_largest_unit_that_fits(ms: float, text: str) -> None:
    assert time_text(ms) == text


def test_rows_that_differ_in_one_column_alone_are_one_row_with_its_range() -> None:
    rows: list[TableRow] = [
        {"size_bytes": 1 << 20, "hit_ratio": ratio, "ttl_ms": ttl}
        for ratio, ttl in ((0.5, 1000), (0.5, 3000), (0.5, 60_000), (0.7, 1000), (0.5, 1000))
    ]
    table = Table("Rows", rows, range_of="ttl_ms")
    assert [(row["hit_ratio"], row["ttl_ms"]) for row in rows_of(table)] == [
        ("50.00 %", "1 s to 1 min"),
        ("70.00 %", "1 s"),
        ("50.00 %", "1 s"),
    ]
    assert len(rows_of(Table("Rows", rows))) == 5
    assert "<h2>Rows" not in html_of(Report("one", "One", tables={"rows": Table("Rows", rows, shown=0)}))


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
