"""Boards that others publish for Pulsar, asked of a Prometheus beside a busy cluster.

`MAGNETAR_STOCK_BOARDS=FOLDER` names the boards, in the folders of `stock_boards.COLLECTIONS`. With
`MAGNETAR_STOCK_BOARDS_WRITE=1` the page is written; otherwise no board may have less data than the page tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.compose import cluster
from tests.compose.__main__ import wait_for
from tests.compose.boards import Query
from tests.compose.cluster import Cluster
from tests.compose.stock_boards import REASONS, Group, Row, group_of, page, rows_of, words
from tests.support.java import class_path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/stock_boards.md"
STOCK = "MAGNETAR_STOCK_BOARDS"
WRITE = "MAGNETAR_STOCK_BOARDS_WRITE"
ASKED_S = 120
"""Seconds that a panel has for its data: windows, scrapes, ranges of a minute."""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster at work, after the first scrapes of all its processes."""
    folder = tmp_path_factory.mktemp("cluster")
    classes = class_path(Path(__file__).parent / "java/pom.xml", tmp_path_factory.mktemp("java"))
    with cluster.running(classes, folder) as running, cluster.at_work(running):
        running.prometheus.wait_for_targets(running.targets)
        yield running


def has_data(busy: Cluster, expression: str) -> bool:
    """Returns True when a series has a value for the query."""
    return bool(busy.prometheus.query(expression))


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.timeout(ASKED_S * 5)
def test_prometheus_has_data_for_every_panel_of_our_boards_on_a_cluster(busy: Cluster) -> None:
    _, empty = busy.prometheus.without_data(ROOT / "conf/grafana/boards", ASKED_S)
    assert not empty, "\n".join(map(str, empty))
    for expression in (
        "sum(pulsar_in_messages_total) > 0",
        "sum(pulsar_ml_cache_x_hits_total) > 0",
        "sum(replication_worker_NUM_BYTES_WRITTEN_sum) > 0",
    ):
        # The killed bookie's session has to expire before anything is copied.
        wait_for(partial(has_data, busy, expression), ASKED_S, expression)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.timeout(ASKED_S * 5)
def test_queries_of_stock_boards_have_data_or_a_reason(busy: Cluster) -> None:
    folder = os.environ.get(STOCK)
    if not folder:
        pytest.skip(f"{STOCK} names no folder with boards")
    if cluster.node_exporter() is None:
        pytest.skip("the node exporter is not installed (Debian: apt-get install prometheus-node-exporter)")
    every, empty = busy.prometheus.without_data(Path(folder), ASKED_S)
    unknown = [str(one) for one in empty if group_of(one, REASONS) is None]
    assert not unknown, "\n".join(unknown)
    if os.environ.get(WRITE):
        PAGE.write_text(page(every, empty), encoding="utf-8")
    known, fewer = documented(), []
    for board, row in rows_of(every, empty).items():
        then = known.get(board, Row())
        if row.own < then.own or row.beside < then.beside or row.queries != then.queries:
            fewer.append(f"{board}: {row}, the page has {then}")
    assert fewer == []


def documented() -> dict[str, Row]:
    """Returns the rows of the page's last table."""
    rows = re.findall(
        r"^\| `([^`]+\.json)` \| (\d+) \| (\d+) \| (\d+) \| \d+ \| (\d+) of (\d+) \|$", PAGE.read_text(), re.M
    )
    return {
        board: Row(int(queries), int(own), int(beside), int(panels), int(shown))
        for board, queries, own, beside, shown, panels in rows
    }


def test_counts_of_the_page_agree_with_each_other() -> None:
    text = PAGE.read_text()
    rows = documented()
    whole = Row()
    for row in rows.values():
        whole = whole.plus(row)
    assert f"| all | {whole.cells()} |" in text
    reasons = re.findall(r"^\| [^`|]+ \| `.+` \| (\d+) \|$", text, re.M)
    assert len(reasons) == len(REASONS)
    assert sum(map(int, reasons)) == whole.empty
    assert "0" not in reasons, "a reason that nothing needs"


def test_patterns_find_whole_words() -> None:
    assert words("node_*").search("sum(node_load1{})")
    assert not words("node_*").search("my_node_load1")
    assert words("zookeeper*.json").search("helm/pulsar/zookeeper-3.6.json x")
    assert not words("zookeeper*.json").search("helm/pulsar/overview.json x")
    assert words('="zookeeper"').search('up{job="zookeeper"}')
    assert not words('="zookeeper"').search('up{job=~"(broker|zookeeper)"}')


def test_rows_count_queries_and_panels_by_their_data() -> None:
    every = [
        Query("a/b.json", "one", "pulsar_rate_in"),
        Query("a/b.json", "one", "pulsar_function_received_total"),
        Query("a/b.json", "two", "node_load1"),
        Query("a/b.json", "three", "pulsar_lb_resource_usage"),
    ]
    assert rows_of(every, [every[1], every[3]]) == {"a/b.json": Row(4, 1, 1, 3, 2)}
    assert group_of(every[0], REASONS) is None
    assert group_of(every[1], (Group(("pulsar_function_*",), "none"),)) == Group(
        ("pulsar_function_*",), "none"
    )
