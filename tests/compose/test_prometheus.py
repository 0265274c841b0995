"""Prometheus itself scrapes a broker and its bookie, and every expression of our boards is asked of it."""

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
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest

from tests.compose.__main__ import wait_for
from tests.compose.test_alerts import alerts
from tests.support.ports import free_port

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
BOARDS = ("broker-cache", "topics", "bookie")
WORK_SECONDS = 5


class Running(NamedTuple):
    prometheus: str
    admin: str
    service: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A bookie, a broker on it, and a Prometheus that scrapes both."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        bookie = start(stack, folder / "bookie", ["-m", "bookie_stub"], BOOKIE)
        broker_settings = {**BROKER, "bookieAddress": bookie["bookie"]}
        broker = start(stack, folder / "broker", ["-m", "magnetar", "standalone"], broker_settings)
        port = free_port()
        config = (ROOT / "conf" / "prometheus.yml").read_text().replace("15s", "1s")
        config = config.replace("global:\n", "global:\n  evaluation_interval: 1s\n")
        config = config.replace("broker:8080", broker["admin"].removeprefix("http://"))
        config = config.replace("bookie:8000", bookie["http"].removeprefix("http://"))
        (folder / "prometheus.yml").write_text(config)
        shutil.copytree(ROOT / "conf" / "alerts", folder / "alerts")
        command = [
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
        ]
        command.append(f"--web.listen-address=127.0.0.1:{port}")
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(stop, server)
        yield Running(f"http://127.0.0.1:{port}", broker["admin"], broker["pulsar"])


BOOKIE: dict[str, object] = {
    "bookiePort": 0,
    "prometheusStatsHttpPort": 0,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
}
BROKER: dict[str, object] = {
    "brokerServicePort": 0,
    "webServicePort": 0,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "statsUpdateFrequencyInSecs": 1,
    "managedLedgerStatsPeriodSeconds": 1,
}


def start(stack: ExitStack, folder: Path, module: list[str], settings: dict[str, object]) -> dict[str, str]:
    """A process of ours with its data in `folder`, stopped with the stack; answers its ready file."""
    folder.mkdir()
    ready = folder / "ready.json"
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        *module,
        "--data",
        str(folder / "data"),
        "--ready-file",
        str(ready),
        *overrides,
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(stop, process)
    wait_for(ready.exists, 60, " ".join(module))
    addresses: dict[str, str] = json.loads(ready.read_text())
    return addresses


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def query(running: Running, expression: str) -> list[object]:
    """The result of an instant query; HTTPError for one that Prometheus does not understand."""
    url = f"{running.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=60) as answer:
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
            consumer.acknowledge(consumer.receive(timeout_millis=60_000))
        time.sleep(0.01)
    client.close()


@pytest.mark.slow
def test_prometheus_has_data_for_every_panel_of_the_boards(running: Running) -> None:
    wait_for(lambda: len(query(running, 'up{job=~"broker|bookie"} == 1')) == 2, 60, "the first scrapes")
    work(running, WORK_SECONDS)
    assert query(running, 'label_replace(jvm_info{job="broker"}, "pod", "$1", "kubernetes_pod_name", "(.+)")')
    empty = []
    for board in BOARDS:
        for panel, expression in expressions(board):
            if not query(running, expression):
                empty.append(f"{board}: {panel}: {expression}")
    assert not empty, "\n".join(empty)
    assert query(running, 'sum(pulsar_in_messages_total{job="broker"}) > 0')
    assert query(running, "sum(pulsar_ml_cache_x_hits_total) > 0")


@pytest.mark.slow
def test_prometheus_evaluates_every_alert(running: Running) -> None:
    """Each rule is evaluated without an error, and none fires on a healthy cluster."""

    def rules() -> list[dict[str, object]]:
        with urllib.request.urlopen(f"{running.prometheus}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: all(rule["health"] != "unknown" for rule in rules()), 90, "the first evaluation")
    assert {rule["name"] for rule in rules()} == {alert.name for alert in alerts()}
    assert [rule for rule in rules() if rule["health"] != "ok" or rule["state"] == "firing"] == []


@pytest.mark.slow
def test_promtool_accepts_the_scrape(running: Running) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    with urllib.request.urlopen(running.admin + "/metrics", timeout=60) as answer:
        text = answer.read()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    # 3: it parses, and names of Pulsar's are not as the linter would have them.
    assert done.returncode in (0, 3), done.stderr.decode()
