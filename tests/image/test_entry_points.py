"""The programs of `docker/bin`, run without an image: how they judge, order and rewrite what they get."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.compose.__main__ import wait_for
from tests.support.ports import free_port

BIN = Path(__file__).resolve().parents[2] / "docker" / "bin"


class Answers(BaseHTTPRequestHandler):
    """Answers `/N` with the status N, and says that the broker is healthy."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/admin/v2/brokers/health" else int(self.path[1:]))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the output of the tests clean."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def run(*words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], **(environ or {})}
    return subprocess.run(words, env=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, True), (503, False), (404, False)])
def test_health_check_judges_by_the_status(server: str, status: int, healthy: bool, tmp_path: Path) -> None:
    done = run("bash", private(tmp_path)[0], f"{server}/{status}")
    assert (done.returncode == 0) is healthy
    assert f"HTTP/1.0 {status} " in done.stdout


@pytest.mark.parametrize("key", ["PULSAR_PREFIX_webServicePort", "webServicePort"])
def test_health_check_asks_the_broker_at_its_port(server: str, key: str, tmp_path: Path) -> None:
    """A container whose port was moved by a setting would be unhealthy for ever."""
    port = server.rpartition(":")[2]
    done = run("bash", private(tmp_path)[0], environ={key: port})
    assert done.returncode == 0
    assert done.stdout == f"http://127.0.0.1:{port}/admin/v2/brokers/health: HTTP/1.0 200 OK\n"


def test_health_check_fails_when_nobody_listens(tmp_path: Path) -> None:
    done = run("bash", private(tmp_path)[0], "http://127.0.0.1:1/200")
    assert (done.returncode, done.stdout) == (1, "http://127.0.0.1:1/200: connection refused\n")


def private(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Returns a check with a mark of its own, and an environment whose `sleep` notes how long it was to last."""
    (tmp_path / "sleep").write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/slept\n')
    (tmp_path / "sleep").chmod(0o755)
    script = tmp_path / "healthcheck"
    script.write_text((BIN / "healthcheck").read_text().replace("good=/tmp/", f"good={tmp_path}/"))
    return str(script), {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_steady_health_check_waits_after_a_good_one_alone(server: str, tmp_path: Path) -> None:
    script, environ = private(tmp_path)

    def check(path: str) -> int:
        return run("bash", script, "--steady", "4", f"{server}/{path}", environ=environ).returncode

    assert [check("503"), check("200")] == [1, 0]
    assert not (tmp_path / "slept").exists()
    assert [check("200"), check("503"), check("200")] == [0, 1, 0]
    assert (tmp_path / "slept").read_text() == "4\n4\n"


def test_steady_health_check_waits_for_a_port_that_is_to_open(tmp_path: Path) -> None:
    script, environ = private(tmp_path)
    port = free_port()
    with HTTPServer(("127.0.0.1", port), Answers, bind_and_activate=False) as closed:
        url = f"http://127.0.0.1:{port}/200"
        words = ["bash", script, "--steady", "60", url]
        with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as checking:
            wait_for((tmp_path / "slept").exists, 60, "a first attempt")
            closed.server_bind()
            closed.server_activate()
            closed.handle_request()
            assert checking.stdout is not None
            assert " 200 " in checking.stdout.read()
        assert checking.returncode == 0


def test_health_check_starts_no_python() -> None:
    text = (BIN / "healthcheck").read_text()
    assert text.startswith("#!/bin/bash\n")
    assert not [line for line in text.splitlines() if "python" in line.partition("#")[0].lower()]


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (
            ["pulsar-client", "--url", "pulsar://b:6650", "produce", "t", "-m", "a b"],
            ["produce", "--url", "pulsar://b:6650", "t", "-m", "a b"],
        ),
        (["pulsar-client", "consume", "t"], ["consume", "t"]),
        (["pulsar-client", "--help"], ["--help"]),
        (["pulsar-admin", "topics", "list", "public/default"], ["admin", "topics", "list", "public/default"]),
        (["pulsar-perf", "produce", "t"], ["perf", "produce", "t"]),
        (["pulsar", "tokens", "create", "-s", "r"], ["token", "create", "-s", "r"]),
        (["pulsar", "standalone", "-nfw", "-nss"], ["standalone", "-nfw", "-nss"]),
        (["pulsar", "bookie"], ["bookie", "--conf", "conf/bookkeeper.conf"]),
    ],
)
def test_programs_of_pulsar_become_commands(words: list[str], passed: list[str], tmp_path: Path) -> None:
    (tmp_path / "magnetar").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "magnetar").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run(str(BIN / words[0]), *words[1:], environ=environ)
    assert (done.stdout.splitlines(), done.returncode) == (passed, 0)
    assert done.stderr == ""


def test_standalone_with_a_functions_worker_says_that_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "magnetar").write_text("#!/bin/sh\n")
    (tmp_path / "magnetar").chmod(0o755)
    done = run(str(BIN / "pulsar"), "standalone", environ={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert "the functions worker is not enabled" in done.stderr
    assert done.returncode == 0


def test_program_that_is_not_offered_is_named() -> None:
    done = run(str(BIN / "pulsar"), "proxy")
    assert done.returncode == 2
    assert "bin/pulsar proxy: not offered here" in done.stderr


def apply(name: str, *words: str, environ: dict[str, str]) -> str:
    done = run(sys.executable, "-I", str(BIN / name), *words, environ=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_keys_of_client_conf_come_from_variables(tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("# authParams=no\nauthPlugin=\nauthParams=\n")
    environ = {"CLIENT_PREFIX_authParams": "token:a=b", "CLIENT_PREFIX_new": "1", "authPlugin": "x"}
    said = apply("apply-config-from-env-with-prefix.py", "CLIENT_PREFIX_", str(conf), environ=environ)
    assert conf.read_text() == "# authParams=no\nauthPlugin=\nauthParams=token:a=b\nnew=1\n"
    assert said == f"{conf}: set authParams, new by the environment\n"
    apply("apply-config-from-env.py", str(conf), environ=environ)
    assert conf.read_text() == "# authParams=no\nauthPlugin=x\nauthParams=token:a=b\nnew=1\n"


def test_prefix_of_pulsars_image_sets_keys_of_client_conf(tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("authPlugin=\n")
    environ = {"PULSAR_PREFIX_authPlugin": "token", "PULSAR_PREFIX_new": "1", "authPlugin": "other"}
    said = apply("apply-config-from-env.py", str(conf), environ=environ)
    assert conf.read_text() == "authPlugin=token\nnew=1\n"
    assert said == f"{conf}: set authPlugin, new by the environment\n"


def test_files_of_servers_are_left_as_they_are(tmp_path: Path) -> None:
    conf = tmp_path / "standalone.conf"
    conf.write_text("clusterName=standalone\n")
    said = apply("apply-config-from-env.py", str(conf), environ={"clusterName": "other"})
    assert conf.read_text() == "clusterName=standalone\n"
    assert "the environment is read at the start" in said
