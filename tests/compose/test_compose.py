"""The compose round as a test; the files that it needs are checked without an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compose.__main__ import main, missing_engine

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "conf" / "grafana" / "boards").glob("*.json"))


@pytest.mark.peer
@pytest.mark.slow
def test_messages_survive_compose_down_and_up() -> None:
    reason = missing_engine()
    if reason is not None:
        pytest.skip(reason)
    assert main([]) == 0


def test_boards_name_the_provisioned_data_source() -> None:
    source = (ROOT / "conf/grafana/provisioning/datasources/prometheus.yml").read_text()
    assert "uid: prometheus\n" in source
    assert [path.stem for path in BOARDS] == ["bookie", "broker-cache", "topics"]
    for path in BOARDS:
        board = json.loads(path.read_text())
        assert board["uid"] == path.stem
        for panel in board["panels"]:
            assert panel["datasource"]["uid"] == "prometheus"
            assert all(target["expr"] for target in panel["targets"])


def test_scrape_jobs_have_the_names_that_stock_boards_use() -> None:
    config = (ROOT / "conf/prometheus.yml").read_text()
    for text in ("job_name: broker", "job_name: bookie", "kubernetes_pod_name:", "honor_labels: true"):
        assert text in config
