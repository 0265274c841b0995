"""`magnetar top --once` and `--json` as processes, beside a broker with traffic, a bookie's port, and none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pulsar
import pytest

from tests.vectors.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), memory=True) as running:
        yield running


def top(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", "top", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


class Sender:
    """Sends to a topic until it is stopped."""

    def __init__(self, url: str, topic: str) -> None:
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._client.subscribe(topic, "s").close()
        self._producer = self._client.create_producer(topic)
        self._producer.send(b"first")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._producer.send(b"x" * 100)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


def test_json_tells_what_a_busy_topic_does(broker: BrokerProcess) -> None:
    with Sender(broker.addresses.pulsar, "busy"):
        done = top("--json", "--interval", "1", "--filter", "busy", "--admin-url", broker.addresses.admin)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (topic,) = found["topics"]
    assert topic["name"] == "persistent://public/default/busy"
    assert topic["in_messages"] > 0
    assert topic["backlog"] > 0
    assert (topic["producers"], topic["subscriptions"]) == (1, 1)
    assert found["in_messages"] == topic["in_messages"]
    assert found["cache"]["max_bytes"] > 0


def test_once_prints_lines_and_a_table(broker: BrokerProcess) -> None:
    done = top("--once", "--interval", "0.1", "--admin-url", broker.addresses.admin)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["broker", "traffic", "cache"]
    assert "\ntopic " in done.stdout


class Bookie(BaseHTTPRequestHandler):
    """Answers as a bookie does, and notes the headers of the request."""

    headers_seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.headers_seen.append(str(self.headers))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# TYPE bookie_ledgers_count gauge\nbookie_ledgers_count 17\n")
        self.wfile.write(b'bookkeeper_server_ADD_ENTRY_count{success="true"} 5\n')

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the output of the tests clean."""


def test_bookie_is_asked_at_its_port_without_the_brokers_token(broker: BrokerProcess) -> None:
    with HTTPServer(("127.0.0.1", 0), Bookie) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        words = ("--bookie-url", url, "--auth-plugin", "token", "--auth-params", "token:secret")
        done = top("--json", "--interval", "0.1", *words, "--admin-url", broker.addresses.admin)
        server.shutdown()
        thread.join()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bookie"]["ledgers"] == 17
    assert Bookie.headers_seen
    assert not [headers for headers in Bookie.headers_seen if "secret" in headers]


def test_broker_that_does_not_answer_is_one_line() -> None:
    done = top("--once", "--admin-url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("magnetar top: no broker answers at http://127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_missing_library_of_the_screen_is_named_with_the_extra() -> None:
    code = (
        "import sys\nsys.modules['textual'] = None\nfrom magnetar.__main__ import main\n"
        "sys.exit(main(['top', '--admin-url', 'http://127.0.0.1:1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'WHEEL[top]', or use --once" in done.stderr


@pytest.mark.parametrize(
    "words", [["--interval", "0"], ["--interval", "x"], ["--sort", "size"], ["--once", "-n", "-5"]]
)
def test_wrong_usage_exits_with_2(words: list[str]) -> None:
    assert top(*words).returncode == 2
