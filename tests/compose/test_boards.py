"""The reader of Grafana's boards: panels of old and new boards, variables, values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.repair.exposition import render as render_copies
from bookkeeper.repair.stats import RecoveryStats
from broker.metrics import broker_families, offload_families
from broker.numbers import topic_families
from tests.compose.boards import queries

BROKERS = 'label_values(up{job="broker"}, p)'
OWN = re.compile(r"pulsar_ml_cache_x_\w+|magnetar_\w+")
BOARDS = Path(__file__).resolve().parents[2] / "conf/grafana/boards"


def values(selector: str, label: str) -> list[str]:
    """Two brokers for the one selector that the tests expect, and a value of its own for any other."""
    return ["b.0", "b.1"] if selector == 'up{job="broker"}' else [f"{label} of {selector}"]


def expressions(tmp_path: Path, board: dict[str, Any]) -> list[str]:
    (tmp_path / "board.json").write_text(json.dumps(board))
    return [query.expression for query in queries(tmp_path, values)]


def panel(expression: str) -> dict[str, Any]:
    return {"title": "t", "targets": [{"expr": expression}]}


def variable(name: str, query: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": "query", "query": query, **more}


def test_panels_of_rows_and_of_panels_are_found(tmp_path: Path) -> None:
    inner = {"title": "row", "panels": [panel("c")]}
    board = {"panels": [panel("a"), {"title": "text"}, inner], "rows": [{"panels": [panel("b")]}]}
    assert expressions(tmp_path, board) == ["a", "c", "b"]
    assert expressions(tmp_path, {"dashboard": {"panels": [panel("d")]}}) == ["d"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('x{p=~"$broker"}', 'x{p=~"(b\\\\.0|b\\\\.1)"}'),
        ('x{p="$broker"}', 'x{p="b.0"}'),
        ('x{p=~"[[broker]]", q!="${broker:regex}"}', 'x{p=~"(b\\\\.0|b\\\\.1)", q!="b.0"}'),
        ('x{p=~"$$broker"}', 'x{p=~"(b\\\\.0|b\\\\.1)"}'),
        ("rate(x[$__rate_interval])", "rate(x[1m])"),
        ("topk($limit, x)", "topk(5, x)"),
        ('x{all=~"$all"}', 'x{all=~".*"}'),
        ('x{n="$next"}', 'x{n="pod of y{b=~"(b\\\\.0|b\\\\.1)"}"}'),
        ('x{pod="$pod"}', 'x{pod="pod of up"}'),
        ('x{one=~"$one"}', 'x{one=~"b.0"}'),
        ('x{number="$number", prefix="$prefix"}', 'x{number="0", prefix="b"}'),
        ('x{last=~"$last"}', 'x{last=~"(b\\\\.1)"}'),
        ('x{cluster="$source"}', 'x{cluster="standalone"}'),
        ('x{u=~"$unknown"}', 'x{u=~".*"}'),
    ],
)
def test_variables_get_values(tmp_path: Path, expression: str, expected: str) -> None:
    board = {
        "templating": {
            "list": [
                variable("broker", {"query": BROKERS}, includeAll=True),
                variable("one", BROKERS),
                variable("number", BROKERS, regex=".*\\.(.*)"),
                variable("prefix", BROKERS, regex="/([^.]+)/"),
                variable("last", BROKERS, regex="/1$/", multi=True),
                {"name": "source", "type": "datasource", "query": "prometheus"},
                variable("pod", "up", regex='/.*[^_]pod=\\"([^\\"]+)\\".*/'),
                variable("all", "label_values(q)", allValue=".*", includeAll=True),
                variable("next", 'label_values(y{b=~"$broker"}, pod)'),
                {"name": "limit", "type": "custom", "query": "5,10", "current": {}},
            ]
        },
        "panels": [panel(expression)],
    }
    assert expressions(tmp_path, board) == [expected]


def test_every_family_of_our_own_is_on_one_of_our_boards() -> None:
    tables = (
        *broker_families.BROKER,
        *broker_families.BROKER_BY,
        *offload_families.OFFLOADS,
        *broker_families.CURVE,
        *broker_families.HISTOGRAMS,
        *offload_families.OFFLOAD_LATENCIES,
        *topic_families.TOPIC,
        *topic_families.SUBSCRIPTION,
        *topic_families.SUBSCRIPTION_CACHE,
        topic_families.CACHE_SUBSCRIPTIONS_LEFT_OUT,
        *topic_families.QUOTAS,
    )
    names = {family.name for family in tables}
    names |= set(re.findall(r"^# TYPE (\w+) ", render_copies(RecoveryStats()).decode(), re.M))
    asked = " ".join(query.expression for query in queries(BOARDS, values))
    assert [name for name in sorted(names) if OWN.fullmatch(name) and name not in asked] == []


def test_panels_of_our_boards_have_a_title_a_unit_and_a_description() -> None:
    for path in sorted(BOARDS.glob("*.json")):
        panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
        assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1)), path.name
        for panel in panels:
            about = f"{path.name}: {panel['title']}"
            assert panel["title"], path.name
            if panel["type"] == "row":
                continue
            assert panel["fieldConfig"]["defaults"]["unit"], about
            assert panel.get("description"), about
