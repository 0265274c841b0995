"""Pages of a fleet of three real brokers and of a history, in a browser: phone and wide screen, light and dark.

`MAGNETAR_SCREENSHOTS` names a folder that keeps the pictures.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

pytest.importorskip("pyspark", reason="needs the extra spark of this package")

from bench.sample_record import SETTINGS, TOPICS, work
from magnetar.commands.pipeline_command import _parser
from pipeline.audits.limits import Limits
from pipeline.audits.run import AUDITS, run_audit
from pipeline.jobs.page import write
from pipeline.jobs.report import Report
from pipeline.jobs.run import JOB_FUNCTIONS
from tests.console.conftest import browser, open_page, screenshots, watch
from tests.console.test_screens import GRAVE
from tests.pipeline.generated_cluster.generator import generate
from tests.pipeline.jobs.test_history import USUAL, run, write_day
from tests.pipeline.jobs.test_on_the_sample import SAMPLE, Shared
from tests.vectors.broker_process import BrokerProcess

__all__ = ["browser", "open_page", "screenshots", "watch"]

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.one_broker("looks at the record of one process"),
]

WIDTHS: Final = {"wide": 1440, "phone": 390}
WORKLOADS: Final[tuple[Mapping[str, int], ...]] = (
    {"tail": 0, "billing": 10},
    {"tail": 0, "billing": 15},
    {"tail": 0, "billing": 40, "archive": 160},
)
"""Lags of each broker's readers, in rounds; those of the last do not fit into its cache."""
HOSTS: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""Addresses of the loopback, one for each broker."""
GRID: Final = ("--sizes-mb", "1,2,4", "--ttl-ms", "1000,10000")
ROUNDS: Final = 250
BODY_BYTES: Final = (2275,) * len(TOPICS)


def record_broker(folder: Path, host: str, lags: Mapping[str, int]) -> str:
    """Records one broker in a process of its own; returns its name."""
    settings = {
        **SETTINGS,
        "entryCacheRecordDirectory": str(folder),
        # With ports of the system's choice, the address alone tells brokers apart in a record.
        "bindAddress": host,
        "advertisedAddress": host,
        # A busy machine must not change what the cache holds.
        "managedLedgerCacheEvictionTimeThresholdMillis": "60000",
    }
    with tempfile.TemporaryDirectory() as data, BrokerProcess(Path(data), settings, memory=True) as broker:
        work(broker.addresses.pulsar, ROUNDS, lags, BODY_BYTES, 0.0)
    return f"{host}-0"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The access record of three brokers that ran side by side, and their names."""
    folder = tmp_path_factory.mktemp("fleet") / "record"
    with ThreadPoolExecutor(len(WORKLOADS)) as brokers:
        return folder, list(brokers.map(partial(record_broker, folder), HOSTS, WORKLOADS))


@pytest.fixture(scope="module")
def pages(
    spark: Any, fleet: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The pages of all jobs and audits, by name."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, words in {
        "budget": ["recommend", str(fleet[0]), "--memory", "2MiB", "--price", "5"],
        "hit-report": ["hit-report", str(fleet[0])],
        # Four topics in one broker, read at three lags: every plot and table has something to show.
        "recommend": ["recommend", str(SAMPLE)],
        "what-if": ["what-if", str(SAMPLE), "--policies", "pip430-4.2,fifo-ttl", *GRID],
        "miss-ratio-curve": ["miss-ratio-curve", str(SAMPLE), "--sample", "0.5"],
        "thrashing": ["thrashing", str(SAMPLE)],
        "compare": ["compare", str(SAMPLE)],
    }.items():
        arguments: Namespace = _parser().parse_args(words)
        report, good = JOB_FUNCTIONS[words[0]](Shared(spark), arguments)
        assert good
        check_fleet(name, report, fleet[1])
        found[name] = write(report, folder / name)
    generate(folder / "snapshot", 200, leaks=3)
    for audit in AUDITS:
        run_audit(spark, audit, folder / "snapshot", folder / audit, Limits(), lambda text: None)
        found[audit] = folder / audit / f"audit-{audit}.html"
    days = folder / "days"
    for day in range(10):
        worse = {reader: (hits // 2, misses + hits // 2) for reader, (hits, misses) in USUAL.items()}
        write_day(days, day, worse if day == 7 else USUAL)
        write_day(days, day, USUAL, broker="b1")
    report = run(spark, days, folder / "history")
    assert len(report.tables["drops"].rows) >= 1
    found["history"] = write(report, folder / "history")
    return found


def check_fleet(name: str, report: Report, brokers: list[str]) -> None:
    """Requires of the budget's report one recommendation for all, and the brokers that differ."""
    if name == "budget":
        differing = {str(row["broker"]): row["differs"] for row in report.tables["brokers"].rows}
        assert differing == {brokers[0]: "less", brokers[1]: "less", brokers[2]: ""}
        assert "2 of 3 brokers differ from the fleet:" in report.text


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_show_all_columns_and_are_accessible(
    spark: Any,
    pages: dict[str, Path],
    open_page: Callable[..., Page],
    screenshots: Path,
    width: str,
    colours: str,
) -> None:
    page = open_page(WIDTHS[width], 900, color_scheme=colours)
    wrong: list[str] = []
    for name, path in pages.items():
        page.goto(path.as_uri())
        expect(page.locator("h1")).to_be_visible()
        page.screenshot(path=screenshots / f"pipeline-{name}-{width}-{colours}.png", full_page=True)
        if page.evaluate("document.documentElement.scrollWidth") > WIDTHS[width]:
            wrong.append(f"{name}: wider than the screen")
        hidden = page.evaluate(
            "[...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth)"
            ".map(one => one.parentElement.querySelector('h2').textContent)"
        )
        wrong += [f"{name}: columns of {title!r} are out of sight" for title in hidden]
        found = Axe().run(page, options={"preload": False}).response["violations"]
        wrong += [f"{name}: {one['id']}" for one in found if one["impact"] in GRAVE]
    assert not wrong, "\n".join(wrong)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) > 600) is (colours == "light")
