"""Sorts the queries of boards that are published for Pulsar, and writes the page about them.

A query has data from Magnetar, has data from another program that Prometheus scrapes beside it, or has none for a
reason. `docs/reference/stock_boards.md` is written by `page`, and a test compares it with what it finds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tests.compose.boards import Query


class Group(NamedTuple):
    """Queries that have one thing in common."""

    patterns: tuple[str, ...]
    """Words of a board's path or of a query; a star stands for any part of a name."""
    text: str
    """The other program, or the reason."""


BESIDE: Final = (
    Group(("zookeeper*.json", '="zookeeper"'), "ZooKeeper"),
    Group(("node_*",), "the node exporter"),
    Group(("prometheus.json",), "Prometheus itself"),
)
"""Programs beside Magnetar whose own numbers a board shows."""
REASONS: Final = (
    Group(("oxia*.json",), "asks Oxia, which Magnetar does not use"),
    Group(
        ("kube_*", "kubelet_*", "container_*", "machine_*"),
        "asks Kubernetes",
    ),
    Group(("logs.json",), "asks Loki for log lines"),
    Group(
        ("prometheus_local_storage_*", "prometheus_evaluator_*"),
        "asks Prometheus 1; version 2 has other names",
    ),
    Group(
        ("zookeeper.json", "zookeeper*.json"),
        "ZooKeeper does not print it, or not while it is alone and well",
    ),
    Group(("pulsar_function_*", "functions.json", "function"), "there are no functions"),
    Group(("pulsar_source_*", "pulsar_sink_*"), "there are no connectors"),
    Group(("proxy", "pulsar_proxy_*"), "there is no proxy"),
    Group(("pulsar_detector_*",), "a program of its own tells it"),
    Group(("kop_*",), "there is no Kafka protocol"),
    Group(("CompactionService.json",), "asks another product's storage"),
    Group(("pulsar_replication_*",), "there is no geo-replication"),
    Group(
        ("pulsar_ledgeroffloader_*",),
        "asks for Apache's converted names; brokers print brk_ledgeroffloader",
    ),
    Group(
        ("pulsar_lb_*", "pulsar_sunit_*"),
        "belongs to Pulsar's extensible load manager, which is off by default there; one broker serves all bundles here",
    ),
    Group(("caffeine_cache_*",), "counts reads of a Java library's caches"),
    Group(
        ("bookie_journal_JOURNAL_QUEUE_LATENCY",),
        "the journal reads no clock per record; JOURNAL_ADD_ENTRY includes the wait",
    ),
    Group(("} == 0)",), "counts read-only bookies, and there is none while all is well"),
    Group(('quantile="1"',), "BookKeeper writes this label as 1.0 now"),
    Group(('namespace=~"default"',), "an error of the board: it asks for a namespace without its tenant"),
    Group(('instance=~"instance"',), "an error of the board: it asks for a broker of the name instance"),
)
"""Why queries have no data; the first that fits."""
COLLECTIONS: Final = {
    "apache": "apache/pulsar, `grafana/dashboards`, of 2026-03-19",
    "helm/pulsar": "those that Apache's Helm chart installs: lhotari/pulsar-grafana-dashboards, `pulsar`, of 2025-07-17",
    "helm/oxia": "the same, `oxia`",
    "streamnative/dashboards": "streamnative/apache-pulsar-grafana-dashboard, `dashboards`, of 2026-08-11",
    "streamnative/dashboards.kubernetes": "the same, `dashboards.kubernetes`",
    "streamnative/dashboards.privatecloud": "the same, `dashboards.privatecloud`",
    "streamnative/dashboards.grafanacloud": "the same, `dashboards.grafanacloud`",
}
"""Folder of boards, and its origin."""


def words(pattern: str) -> re.Pattern[str]:
    """Returns an expression that finds the pattern, at its ends between words where they are parts of words."""
    before = r"(?<!\w)" if pattern[0].isalnum() else ""
    after = r"(?!\w)" if pattern[-1].isalnum() else ""
    return re.compile(before + re.escape(pattern).replace(r"\*", "[a-zA-Z0-9_:.-]*") + after)


def group_of(query: Query, groups: Iterable[Group]) -> Group | None:
    """Returns the first group that a query belongs to."""
    text = f"{query.board} {query.expression}"
    for group in groups:
        if any(words(pattern).search(text) for pattern in group.patterns):
            return group
    return None


class Row(NamedTuple):
    """The counts of one board, or of several."""

    queries: int = 0
    """Different queries."""
    own: int = 0
    """With data from Magnetar."""
    beside: int = 0
    """With data from programs beside it."""
    panels: int = 0
    """Panels that ask anything."""
    shown: int = 0
    """Panels of which a query has data."""

    @property
    def empty(self) -> int:
        """Queries without data."""
        return self.queries - self.own - self.beside

    def plus(self, other: Row) -> Row:
        """Returns the sum of both."""
        return Row(*map(sum, zip(self, other, strict=True)))

    def cells(self) -> str:
        """Returns the cells of a table's row."""
        return f"{self.queries} | {self.own} | {self.beside} | {self.empty} | {self.shown} of {self.panels}"


HEAD: Final = "| {} | queries | data from Magnetar | from others | none | panels with data |\n|---|---|---|---|---|---|\n"


def rows_of(every: Sequence[Query], empty: Iterable[Query]) -> dict[str, Row]:
    """Returns a row for each board, in the order of the queries."""
    without = set(empty)
    rows: dict[str, Row] = {}
    for board in dict.fromkeys(query.board for query in every):
        asked = [query for query in every if query.board == board]
        answered = [query for query in asked if query not in without]
        beside = sum(group_of(query, BESIDE) is not None for query in answered)
        rows[board] = Row(
            len(asked),
            len(answered) - beside,
            beside,
            len({query.panel for query in asked}),
            len({query.panel for query in answered}),
        )
    return rows


def page(every: Sequence[Query], empty: Sequence[Query]) -> str:
    """Returns the whole page. KeyError for a query without data and without a reason."""
    rows = rows_of(every, empty)
    by_reason = Counter(group.text for query in empty if (group := group_of(query, REASONS)) is not None)
    whole = Row()
    collections = [HEAD.format("boards")]
    for folder, origin in COLLECTIONS.items():
        together = Row()
        for board, row in rows.items():
            if board.rpartition("/")[0] == folder:
                together = together.plus(row)
        whole = whole.plus(together)
        collections.append(f"| {origin} | {together.cells()} |\n")
    collections.append(f"| all | {whole.cells()} |\n")
    boards = [f"| `{board}` | {row.cells()} |\n" for board, row in rows.items()]
    reasons = [
        f"| {group.text} | {', '.join(f'`{pattern}`' for pattern in group.patterns)} | {by_reason[group.text]} |\n"
        for group in REASONS
    ]
    return (
        TEXT
        + "".join(collections)
        + REASONS_TEXT
        + "".join(reasons)
        + BOARDS_TEXT
        + HEAD.format("board")
        + "".join(boards)
    )


TEXT: Final = """# Stock boards

Boards that others publish for Pulsar, and how many of their queries and panels have data on a busy Magnetar. This page
is written by `tests/compose/test_stock_boards.py`, which asks a Prometheus for each query. That Prometheus scrapes a
broker on ZooKeeper, two bookies, re-replication while it copies the ledgers of a third bookie that was killed,
ZooKeeper, the node exporter and itself.

## Needs of the boards

* Scrape jobs are called `broker`, `bookie`, `zookeeper`, with `honor_labels: true` and a label `kubernetes_pod_name`;
  `conf/prometheus.yml` has them.
* StreamNative's boards want a data source that is called as the cluster (`clusterName`): `loadbalance.json` asks for a
  cluster of its name.
* `dashboards.privatecloud` wants the labels `pod`, `cloud_streamnative_io_cluster` and
  `cloud_streamnative_io_component` (the job) for each target.
* `pulsar_lb_bandwidth_*_usage` need [a speed of the network](metrics.md#the-process).

## Counts

Columns: queries with data from Magnetar's own processes, queries with data from other programs that run beside it,
queries without data, and panels of which at least one query has data.

"""
REASONS_TEXT: Final = """
## Why the others have none

The first row that fits counts.

| reason | words of the query or of the board's name | queries |
|---|---|---|
"""
BOARDS_TEXT: Final = """
## Each board

"""
