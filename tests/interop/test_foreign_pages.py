"""Web pages of other origins at the admin port of a broker process, by raw requests and by a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, wait_until
from tests.support.raw_http import send
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "advertisedAddress": "localhost",
    "advertisedListeners": "inside:pulsar://broker:6650,balancer:pulsar://pulsar.example.org:6650",
}
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TOPICS: Final = "/admin/v2/persistent/public/default"


def is_terminated(admin: Admin, topic: str) -> bool:
    answer = send(admin.owner_url(topic), f"GET {TOPICS}/{topic}/internalStats")
    assert answer.status == 200, answer
    state = json.loads(answer.body)["state"]
    return str(state) == "Terminated"


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic that an attack would terminate."""
    name = f"t-{uuid.uuid4().hex}"
    admin.put(f"persistent/public/default/{name}")
    return name


ATTACKS: Final = {
    "text": (["Origin: http://evil.example", "Content-Type: text/plain"], 403),
    "without a body": (["Origin: http://evil.example"], 403),
    "of a sandbox": (["Origin: null"], 403),
    "of another port": (["Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"], 403),
    "of an old browser": (["Content-Type: text/plain"], 415),
    "of a form": (["Content-Type: application/x-www-form-urlencoded"], 415),
    "of a form with files": (["Content-Type: multipart/form-data; boundary=x"], 415),
}


@pytest.mark.parametrize(("headers", "status"), ATTACKS.values(), ids=ATTACKS)
def test_topic_survives_a_post_of_a_foreign_page(
    admin: Admin, topic: str, headers: list[str], status: int
) -> None:
    owner = admin.owner_url(topic)
    answer = send(owner, f"POST {TOPICS}/{topic}/terminate", *headers, body=b"x")
    assert answer.status == status
    assert set(json.loads(answer.body)) == {"reason"}
    assert not is_terminated(admin, topic)
    own = send(owner, f"POST {TOPICS}/{topic}/terminate")
    assert own.status == 200
    assert is_terminated(admin, topic), "the request itself is one that terminates"


@pytest.mark.parametrize("path", ["/admin/v2/clusters", "/metrics", "/nowhere", "/admin/v2/brokers/health"])
def test_foreign_host_name_reads_nothing(broker: BrokerProcess, path: str) -> None:
    answer = send(broker.addresses.admin, f"GET {path}", host="evil.example:8080")
    assert answer.status == 421
    assert json.loads(answer.body)["reason"].endswith("use an address, or name it in advertisedListeners")


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1:8080", "[::1]:8080", "10.0.0.9:8080", "broker:8080", "pulsar.example.org"],
)
def test_names_of_the_broker_are_served(broker: BrokerProcess, host: str) -> None:
    assert send(broker.addresses.admin, "GET /metrics", host=host).status == 200


def test_no_answer_has_a_header_of_cors(broker: BrokerProcess) -> None:
    asking = ["Origin: http://evil.example", "Access-Control-Request-Method: PUT"]
    for line in (
        "OPTIONS /admin/v2/clusters",
        "GET /admin/v2/clusters",
        "POST /admin/v2/clusters/x",
        "GET /x",
    ):
        answer = send(broker.addresses.admin, line, *asking)
        assert not [name for name in answer.headers if name.startswith("access-control")], line
        assert answer.status != 204


def test_refusals_take_one_line_of_the_log(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {}, memory=True)
    broker.start()
    for _ in range(50):
        assert send(broker.addresses.admin, "GET /metrics", host="evil.example").status == 421
    # A clean stop writes the rest of the log.
    assert broker.stop() == 0
    lines = [line for line in broker.log_lines() if "evil.example" in line]
    assert len(lines) == 1, lines
    assert "! GET /metrics: Host 'evil.example' is no name of this server" in lines[0]
    assert "Traceback" not in broker.log_tail()


def test_python_client_looks_topics_up_over_http(broker: BrokerProcess, topic: str) -> None:
    client = pulsar.Client(broker.addresses.admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"found")
    assert consumer.receive(timeout_millis=60_000).data() == b"found"
    client.close()


PAGE: Final = """<!DOCTYPE html><title>evil</title><iframe name="hidden"></iframe><script>
const outcome = {};
const admin = "ADMIN", path = "/admin/v2/persistent/public/default/TOPIC/terminate";
const attempt = async (name, action) => {
    try { outcome[name] = await action(); } catch (error) { outcome[name] = "blocked"; }
};
const json = {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"};
const submitted = target => new Promise(done => {
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: target, target: "hidden", enctype: "text/plain"});
    document.body.append(form);
    document.querySelector("iframe").onload = () => done("sent");
    form.submit();
});
(async () => {
    for (const server of [admin, "CONTROL"]) {
        const at = server === admin ? "broker" : "control", target = server + path;
        await attempt(at + " text", async () => (await fetch(target, {method: "POST", mode: "no-cors", body: "x"})).type);
        await attempt(at + " form", () => submitted(target));
        await attempt(at + " beacon", async () => navigator.sendBeacon(target, "x"));
        await attempt(at + " json", async () => (await fetch(target, json)).status);
        await attempt(at + " read", async () => (await fetch(server + "/admin/v2/clusters")).text());
    }
    await fetch("/outcome", {method: "POST", body: JSON.stringify(outcome)});
})();
</script>"""


class Site(ThreadingHTTPServer):
    """A web site that serves one page, and keeps each POST that it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SiteRequest)
        self.page = b""
        self.posts: list[tuple[str, bytes]] = []


class _SiteRequest(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self._answer(self.server.page)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.posts.append((self.path, body))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def serving() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


@contextmanager
def browsing(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a headless browser: one of {', '.join(BROWSERS)}")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", f"--user-data-dir={folder}"]
    with subprocess.Popen(
        [browser, *flags, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process
        process.terminate()


@pytest.mark.peer
@pytest.mark.slow
def test_page_in_a_browser_changes_and_reads_nothing(admin: Admin, topic: str, tmp_path: Path) -> None:
    with serving() as evil, serving() as control:
        port = admin.owner_url(topic).rpartition(":")[2]
        page = PAGE.replace("ADMIN", f"http://localhost:{port}").replace("TOPIC", topic)
        evil.page = page.replace("CONTROL", f"http://localhost:{control.server_port}").encode()
        # The page's `--remote-debugging-port` keeps the browser open until it is stopped.
        with browsing(tmp_path, "--remote-debugging-port=0", f"http://127.0.0.1:{evil.server_port}/"):
            wait_until(
                lambda: [path for path, _ in evil.posts if path == "/outcome"], "the page's outcome", 60
            )
        outcome = json.loads(dict(evil.posts)["/outcome"])
        assert len(control.posts) == 3, (
            "the browser does send text, form and beacon to a server without a guard"
        )
    assert not is_terminated(admin, topic)
    for server in ("broker", "control"):
        assert outcome[f"{server} text"] == "opaque"
        assert (outcome[f"{server} form"], outcome[f"{server} beacon"]) == ("sent", True)
        assert (outcome[f"{server} json"], outcome[f"{server} read"]) == ("blocked", "blocked")


@pytest.mark.peer
@pytest.mark.slow
def test_site_in_a_browser_reads_nothing_when_its_name_leads_here(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    port = broker.addresses.admin.rpartition(":")[2]
    rebound = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    pages = {}
    for name in ("evil.example", "localhost"):
        with browsing(
            tmp_path / name, rebound, "--dump-dom", f"http://{name}:{port}/admin/v2/clusters"
        ) as process:
            pages[name] = process.communicate(timeout=60)[0]
    assert "standalone" in pages["localhost"]
    assert "is no name of this server" in pages["evil.example"]
    assert "standalone" not in pages["evil.example"]
