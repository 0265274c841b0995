"""Prometheus itself scrapes a broker, and every expression of our boards is asked of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest

from tests.compose.__main__ import _free_port, wait_for

ROOT = Path(__file__).resolve().parents[2]
BOARDS = ("broker-cache", "topics")
SCRAPES = 4
NO_DATA_HERE = {
    "Hit ratio per topic": "all reads may come before the first of the scrapes that the rate needs",
}
"""Panels that this workload need not fill, and why."""


class Running(NamedTuple):
    prometheus: str
    admin: str
    service: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    with subprocess.Popen(_broker_command(folder), stdout=subprocess.DEVNULL) as broker:
        try:
            wait_for((folder / "ready.json").exists, 20, "the broker")
            addresses = json.loads((folder / "ready.json").read_text())
            with subprocess.Popen(
                _prometheus_command(binary, folder, addresses["admin"]), stderr=subprocess.DEVNULL
            ) as server:
                try:
                    url = f"http://127.0.0.1:{(folder / 'port').read_text()}"
                    yield Running(url, addresses["admin"], addresses["pulsar"])
                finally:
                    server.terminate()
        finally:
            broker.terminate()


def _broker_command(folder: Path) -> list[str]:
    settings = {
        "brokerServicePort": 0,
        "webServicePort": 0,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "statsUpdateFrequencyInSecs": 1,
        "managedLedgerStatsPeriodSeconds": 1,
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "magnetar",
        "standalone",
        "--memory",
        "--ready-file",
        str(folder / "ready.json"),
    ]
    return command + overrides


def _prometheus_command(binary: str, folder: Path, admin: str) -> list[str]:
    """conf/prometheus.yml as it is, with this broker's address and a scrape every second."""
    config = (ROOT / "conf" / "prometheus.yml").read_text()
    config = config.replace("broker:8080", admin.removeprefix("http://")).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config)
    port = _free_port()
    (folder / "port").write_text(str(port))
    return [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def query(running: Running, expression: str) -> list[object]:
    """The result of an instant query; HTTPError for one that Prometheus does not understand."""
    url = f"{running.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        data = json.load(answer)
    assert data["status"] == "success"
    result: list[object] = data["data"]["result"]
    return result


def expressions(board: str) -> Iterator[tuple[str, str]]:
    """(panel, expression) with every variable standing for all."""
    for panel in json.loads((ROOT / "conf/grafana/boards" / f"{board}.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$\w+", ".*", target["expr"])


def work(running: Running, seconds: float) -> None:
    """A producer, and a consumer on it, for so long."""
    client = pulsar.Client(running.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("boards", "s")
    producer = client.create_producer("boards")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            producer.send(b"x" * 700)
            consumer.acknowledge(consumer.receive(timeout_millis=10_000))
        time.sleep(0.01)
    client.close()


@pytest.mark.slow
def test_prometheus_finds_data_for_every_panel_of_the_brokers_boards(running: Running) -> None:
    wait_for(lambda: bool(query(running, 'up{job="broker"} == 1')), 30, "the first scrape")
    work(running, SCRAPES + 1)
    assert query(running, 'label_replace(jvm_info{job="broker"}, "pod", "$1", "kubernetes_pod_name", "(.+)")')
    empty = []
    for board in BOARDS:
        for panel, expression in expressions(board):
            if not query(running, expression) and panel not in NO_DATA_HERE:
                empty.append(f"{board}: {panel}: {expression}")
    assert not empty, "\n".join(empty)
    assert query(running, 'sum(pulsar_in_messages_total{job="broker"}) > 0')
    assert query(running, "sum(pulsar_ml_cache_x_hits_total) > 0")


@pytest.mark.slow
def test_promtool_parses_our_text(running: Running) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    with urllib.request.urlopen(running.admin + "/metrics", timeout=10) as answer:
        text = answer.read()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    # 3: it parses, and names of Pulsar's are not as the linter would have them.
    assert done.returncode in (0, 3), done.stderr.decode()
