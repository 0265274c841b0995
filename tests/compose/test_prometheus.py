"""Prometheus itself scrapes a broker and its bookie at work, and every query of our boards is asked of it.

With `MAGNETAR_STOCK_BOARDS=FOLDER` the boards of that folder are asked too, such as those that are published for Pulsar.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest

from tests.compose.__main__ import Failed, wait_for
from tests.compose.boards import Query, queries
from tests.compose.test_alerts import alerts
from tests.support.ports import free_port
from tests.support.raw_client import RawConnection

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
STOCK = "MAGNETAR_STOCK_BOARDS"
BURST = 20
"""Messages sent, and read, at a time."""
SCRAPED_S = 3
"""Interval of the scrapes, and the time that each may take on a busy machine."""
ASKED_S = 120
"""Seconds that a panel has for its data: windows, scrapes, ranges of a minute."""


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
        config = (ROOT / "conf" / "prometheus.yml").read_text().replace("15s", f"{SCRAPED_S}s")
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


class NotUnderstood(Exception):
    """A query that is no PromQL (400), or that Prometheus cannot carry out on these series (422)."""


def asked(running: Running, path: str, **parameters: str) -> Any:
    """The data of an answer of Prometheus. Raises NotUnderstood, and OSError while Prometheus starts."""
    url = f"{running.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code not in (400, 422):
            raise
        raise NotUnderstood(f"{parameters}: {error.read().decode()}") from None
    assert found["status"] == "success"
    return found["data"]


def query(running: Running, expression: str) -> list[dict[str, Any]]:
    """The series of an instant query whose value is a number; a quotient of zeros is none."""
    result: list[dict[str, Any]] = asked(running, "query", query=expression)["result"]
    return [series for series in result if not math.isnan(float(series["value"][1]))]


def values(running: Running, selector: str, label: str) -> list[str]:
    """The values of a label, as Grafana asks for those of a variable."""
    matched = {"match[]": selector} if selector else {}
    found: list[str] = asked(running, f"label/{label}/values", **matched)
    return found


async def transaction(running: Running) -> None:
    """Begins a transaction, so that a coordinator is open; it ends by its timeout."""
    cnx = await RawConnection.open(running.service)
    await cnx.connect()
    cnx.send("TC_CLIENT_CONNECT_REQUEST", request_id=1, tc_id=0)
    await cnx.receive("TC_CLIENT_CONNECT_RESPONSE")
    cnx.send("NEW_TXN", request_id=2, txn_ttl_seconds=1000, tc_id=0)
    await cnx.receive("NEW_TXN_RESPONSE")
    await cnx.close()


@contextlib.contextmanager
def at_work(running: Running) -> Iterator[None]:
    """A producer with a subscription that keeps up, one that leaves all, and readers of older messages."""
    client = pulsar.Client(running.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("boards", "s")
    client.subscribe("boards", "behind", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10)
    producer = client.create_producer("boards")
    stop, failed = threading.Event(), list[Exception]()

    def work() -> None:
        try:
            sent, chance = list[pulsar.MessageId](), random.Random(1)
            while not stop.wait(0.02):
                for _ in range(BURST):
                    sent.append(producer.send(b"x" * 700))
                    consumer.acknowledge(consumer.receive(timeout_millis=60_000))
                # Any older place, so that the entries have left the caches.
                reader = client.create_reader("boards", sent[chance.randrange(len(sent) - BURST + 1)])
                for _ in range(BURST - 1):
                    reader.read_next(timeout_millis=60_000)
                reader.close()
        except Exception as error:  # noqa: BLE001 - The test's own thread raises it.
            failed.append(error)

    asyncio.run(transaction(running))
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        client.close()
    assert not failed, failed


def without_data(running: Running, folder: Path, seconds: float) -> list[Query]:
    """The queries of the boards that have no data, after asking them again for a while."""
    left = list(dict.fromkeys(queries(folder, lambda selector, label: values(running, selector, label))))

    def has_data(one: Query) -> bool:
        try:
            return bool(query(running, one.expression))
        except NotUnderstood:
            return False

    def all_have_data() -> bool:
        left[:] = [one for one in left if not has_data(one)]
        return not left

    with contextlib.suppress(Failed):
        wait_for(all_have_data, seconds, "data of every panel")
    return left


@pytest.mark.slow
@pytest.mark.timeout(ASKED_S * 3)
def test_prometheus_has_data_for_every_panel_of_the_boards(running: Running) -> None:
    wait_for(lambda: len(query(running, 'up{job=~"broker|bookie"} == 1')) == 2, 60, "the first scrapes")
    with at_work(running):
        empty = without_data(running, ROOT / "conf/grafana/boards", ASKED_S)
    assert not empty, "\n".join(map(str, empty))
    assert query(running, 'sum(pulsar_in_messages_total{job="broker"}) > 0')
    assert query(running, "sum(pulsar_ml_cache_x_hits_total) > 0")


def reasons() -> list[tuple[str, str]]:
    """(pattern, reason) of the table of metrics.md about panels of stock boards without data."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    part = page.partition("## Stock boards")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|$", part, re.M)
    return [(pattern, reason) for patterns, reason in rows for pattern in re.findall(r"`([^`]+)`", patterns)]


def words(pattern: str) -> re.Pattern[str]:
    """Finds the pattern as a whole word; a star stands for any part of a name."""
    return re.compile(rf"(?<!\w){re.escape(pattern)}(?!\w)".replace(r"\*", "[a-zA-Z0-9_:.-]*"))


@pytest.mark.slow
@pytest.mark.timeout(ASKED_S * 3)
def test_panels_of_stock_boards_without_data_have_a_reason(running: Running) -> None:
    folder = os.environ.get(STOCK)
    if not folder:
        pytest.skip(f"{STOCK} names no folder with boards")
    wait_for(lambda: len(query(running, 'up{job=~"broker|bookie"} == 1')) == 2, 60, "the first scrapes")
    with at_work(running):
        empty = without_data(running, Path(folder), ASKED_S)
    known = [(words(pattern), reason) for pattern, reason in reasons()]
    unknown = []
    for one in empty:
        found = (reason for pattern, reason in known if pattern.search(f"{one.board} {one.expression}"))
        reason = next(found, None)
        print(f"{one.board}: {one.panel}: {reason}: {one.expression}")
        if reason is None:
            unknown.append(str(one))
    assert not unknown, "\n".join(unknown)


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
