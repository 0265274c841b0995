"""Alert rules: Prometheus accepts them, their metrics exist, and docs/how-to/operations.md explains each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bookie_stub.http.exposition import render
from bookkeeper.repair.exposition import render as render_copies
from bookkeeper.repair.stats import RecoveryStats
from broker.metrics import broker_families, offload_families
from broker.numbers import topic_families
from tests.bookie_stub.conftest import Bench
from tests.test_docs import anchors_of

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = "docs/how-to/operations.md"
FILES: Final = sorted((ROOT / "conf" / "alerts").glob("*.yml"))
PARTS: Final = ("", ".cluster")
"""Of the names of compose files and their configurations of Prometheus."""

_ALERT = re.compile(
    r"^ +- alert: (?P<name>\w+)\n"
    r" +expr: (?P<expr>.+)\n"
    r" +for: \d+[smhd]\n"
    r" +labels: \{severity: (?:warning|critical)\}\n"
    r" +annotations:\n"
    r' +summary: ".+"\n'
    r' +section: "#(?P<section>[\w-]+)"\n',
    re.M,
)
_METRIC = re.compile(r"\b(?:pulsar|magnetar|bookie|bookkeeper_server|jvm|zk)_\w+")


class Alert(NamedTuple):
    """One rule of `conf/alerts`."""

    name: str
    expression: str
    section: str


def alerts() -> list[Alert]:
    """Returns all rules; each has the members that `_ALERT` names, in that order."""
    found = list[Alert]()
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        parsed = [Alert(one["name"], one["expr"], one["section"]) for one in _ALERT.finditer(text)]
        assert len(parsed) == text.count("- alert:"), (
            f"{path.name}: a rule lacks a member or its order differs"
        )
        found += parsed
    return found


def names_of_brokers() -> set[str]:
    """Returns the names of all series that a broker can print."""
    families = (
        *topic_families.TOPIC,
        *topic_families.SUBSCRIPTION,
        *topic_families.SUBSCRIPTION_CACHE,
        *topic_families.CONSUMER,
        *topic_families.NAMESPACE,
        *topic_families.TOTALS,
        *topic_families.QUOTAS,
        *topic_families.TRANSACTIONS,
        topic_families.TOPICS_COUNT,
        *broker_families.BROKER,
        *broker_families.BROKER_BY,
        *offload_families.OFFLOADS,
    )
    return {family.name for family in families}


def test_names_of_alerts_are_unique() -> None:
    names = [alert.name for alert in alerts()]
    assert names
    assert len(names) == len(set(names))


async def test_metrics_of_alerts_are_exported_by_a_broker_or_a_bookie(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bookie = set(re.findall(r"^(\w+)", render(bench.open()).decode(), re.M))
    bench.close()
    copies = set(re.findall(r"^(\w+)", render_copies(RecoveryStats()).decode(), re.M))
    known = names_of_brokers() | bookie | copies
    wrong = [
        (alert.name, metric)
        for alert in alerts()
        for metric in _METRIC.findall(alert.expression)
        if metric not in known
    ]
    assert wrong == []


def test_metrics_of_alerts_are_on_a_board() -> None:
    """An alert asks for a look at the past of its metric."""
    boards = "".join(path.read_text() for path in (ROOT / "conf/grafana/boards").glob("*.json"))
    found = {(alert.name, metric) for alert in alerts() for metric in _METRIC.findall(alert.expression)}
    assert {one for one in found if one[1] not in boards} == set()


def test_alerts_are_explained_in_the_section_that_they_name() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\) \| (.*) \|$", text, re.M))
    wrong = [
        alert.name
        for alert in alerts()
        if alert.section not in anchors_of(PAGE) or f"`{alert.name}`" not in rows.get(alert.section, "")
    ]
    assert wrong == [], f"{PAGE} lacks these in the table, or their section"
    assert set(re.findall(r"`(\w+)`", " ".join(rows.values()))) == {alert.name for alert in alerts()}


@pytest.mark.parametrize("part", PARTS)
def test_prometheus_of_the_compose_file_loads_the_alerts(part: str) -> None:
    config = (ROOT / f"conf/prometheus{part}.yml").read_text(encoding="utf-8")
    assert "\nrule_files:\n  - alerts/*.yml\n" in config
    compose = (ROOT / f"docker-compose{part}.yml").read_text(encoding="utf-8")
    assert "- ./conf/alerts:/etc/prometheus/alerts:ro\n" in compose


@pytest.mark.peer
@pytest.mark.parametrize("part", PARTS)
def test_promtool_accepts_configuration_and_alerts(part: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run(
        [promtool, "check", "config", str(ROOT / f"conf/prometheus{part}.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FILES)} rule files found" in done.stdout
