"""Prometheus itself scrapes a broker and its bookie at work, and every query of our boards is asked of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compose.__main__ import wait_for
from tests.compose.asking import SCRAPED_S, Prometheus, stop
from tests.compose.clients import at_work
from tests.compose.test_alerts import alerts

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
ASKED_S = 120
"""Seconds that a panel has for its data: windows, scrapes, ranges of a minute."""


class Running(NamedTuple):
    prometheus: Prometheus
    admin: str
    service: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A bookie, a broker on it, and a Prometheus that scrapes both by the file that we ship."""
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        config = (ROOT / "conf" / "prometheus.yml").read_text().replace("15s", f"{SCRAPED_S}s")
        config = config.replace("global:\n", "global:\n  evaluation_interval: 1s\n")
        shutil.copytree(ROOT / "conf" / "alerts", folder / "alerts")
        bookie = start(stack, folder / "bookie", ["-m", "bookie_stub"], BOOKIE)
        broker_settings = {**BROKER, "bookieAddress": bookie["bookie"]}
        broker = start(stack, folder / "broker", ["-m", "magnetar", "standalone"], broker_settings)
        config = config.replace("broker:8080", broker["admin"].removeprefix("http://"))
        config = config.replace("bookie:8000", bookie["http"].removeprefix("http://"))
        server = Prometheus(folder, config)
        stack.enter_context(server.running())
        yield Running(server, broker["admin"], broker["pulsar"])


BOOKIE: dict[str, object] = {
    "bookiePort": 0,
    "prometheusStatsHttpPort": 0,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    # Else entries stay in the write cache for a minute, and no read needs the disk.
    "flushInterval": 1000,
}
BROKER: dict[str, object] = {
    "brokerServicePort": 0,
    "webServicePort": 0,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "statsUpdateFrequencyInSecs": 1,
    "managedLedgerStatsPeriodSeconds": 1,
    "transactionCoordinatorEnabled": "true",
    # The loopback carries all that the test sends. Linux knows no speed of it.
    "loadBalancerOverrideBrokerNics": "lo",
    "loadBalancerOverrideBrokerNicSpeedGbps": "10",
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


@pytest.mark.slow
@pytest.mark.timeout(ASKED_S * 3)
def test_prometheus_has_data_for_every_panel_of_the_boards(running: Running) -> None:
    running.prometheus.wait_for_targets(2)
    with at_work(running.admin, running.service):
        # Nothing is copied here; `test_stock_boards.py` asks that board beside a cluster.
        _, empty = running.prometheus.without_data(
            ROOT / "conf/grafana/boards", ASKED_S, leave_out="rereplication.json"
        )
    assert not empty, "\n".join(map(str, empty))
    assert running.prometheus.query('sum(pulsar_in_messages_total{job="broker"}) > 0')
    assert running.prometheus.query("sum(pulsar_ml_cache_x_hits_total) > 0")


@pytest.mark.slow
def test_prometheus_evaluates_every_alert(running: Running) -> None:
    """Each rule is evaluated without an error, and none fires on a healthy cluster."""

    def rules() -> list[dict[str, object]]:
        with urllib.request.urlopen(f"{running.prometheus.url}/api/v1/rules", timeout=60) as answer:
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
