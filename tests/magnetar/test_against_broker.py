"""The commands as processes of their own against a running Magnetar."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from broker.net.wire_fields import fields_without_effect
from tests.crash.broker_process import ROOT, BrokerProcess
from tests.support.ports import accepts, free_port

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings=())
    process.start()
    yield process
    process.close()


def start(*words: str) -> subprocess.Popen[str]:
    """Starts a command; its output and its errors are pipes."""
    # In asyncio's debug mode a command logs that its imports held the loop, and these tests count the lines of errors.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONASYNCIODEBUG"}
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts a background job with SIGINT ignored, and children inherit that: interrupts would do nothing.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(*words: str) -> tuple[int, str, str]:
    """Runs a command to its end. Returns its exit code, output and errors."""
    with start(*words) as process:
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors


def test_consume_prints_the_messages_that_produce_sent(broker: BrokerProcess, tmp_path: Path) -> None:
    url = ("--url", broker.url)
    (tmp_path / "body").write_bytes(b"\x00\xff")
    code, out, errors = run(
        "magnetar",
        "produce",
        "cli-1",
        *url,
        "-m",
        "one,two",
        "-f",
        str(tmp_path / "body"),
        "-k",
        "key",
        "-p",
        "a=b",
    )
    assert (code, errors) == (0, "")
    assert out.endswith("3 messages successfully produced\n")
    code, out, errors = run(
        "magnetar", "consume", "cli-1", *url, "-s", "sub", "-n", "3", "-p", "Earliest", "--hex"
    )
    assert (code, errors) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "----- got message -----"
    assert [line.split("content:")[1] for line in lines if "content:" in line] == [
        "6f 6e 65",
        "74 77 6f",
        "00 ff",
    ]
    assert "key:[key], properties:[a=b]" in lines[1]
    assert lines[-1].endswith("3 messages successfully consumed")


def test_consume_reads_without_a_subscription_and_by_pattern(broker: BrokerProcess) -> None:
    url = ("--url", broker.url)
    assert run("magnetar", "produce", "cli-pattern-1", *url, "-m", "x")[0] == 0
    code, out, _ = run(
        "magnetar", "consume", "cli-pattern-1", *url, "-s", "r", "-m", "NonDurable", "-p", "Earliest"
    )
    assert (code, "content:x" in out) == (0, True)
    code, out, _ = run("magnetar", "consume", "cli-pattern-.*", *url, "-s", "p", "--regex", "-p", "Earliest")
    assert (code, "content:x" in out) == (0, True)


def test_consume_ends_with_its_count_when_interrupted(broker: BrokerProcess) -> None:
    words = ("consume", "cli-2", "--url", broker.url, "-s", "sub", "-n", "0", "-p", "Earliest")
    with start("magnetar", *words) as consumer:
        assert run("magnetar", "produce", "cli-2", "--url", broker.url, "-m", "x")[0] == 0
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "----- got message -----\n"
        consumer.send_signal(signal.SIGINT)
        out, errors = consumer.communicate(timeout=60)
    assert (consumer.returncode, errors.strip()) == (0, "")
    assert out.endswith("1 messages successfully consumed\n")


def test_produce_prints_one_line_and_fails_when_the_broker_refuses(broker: BrokerProcess) -> None:
    code, _, errors = run("magnetar", "produce", "ftp://x/y/z", "--url", broker.url, "-m", "x")
    assert code == 1
    assert "magnetar produce: Pulsar error: InvalidTopicName" in errors
    assert "Traceback" not in errors


def test_perf_counts_sent_and_received_messages(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "p.hgrm"
    consume = ("perf", "consume", "cli-3", "-u", broker.url, "-m", "300", "-sp", "Earliest", "-ss", "s")
    produce = (
        "perf",
        "produce",
        "cli-3",
        "-u",
        broker.url,
        "-m",
        "300",
        # A second and a half, so that the line of an interval comes on a busy machine too.
        "-r",
        "200",
        "-s",
        "64",
        "-i",
        "0.1",
    )
    with start("magnetar", *consume) as consumer:
        code, out, errors = run("magnetar", *produce, "--warmup-time", "0", "--histogram-file", str(file))
        received, _ = consumer.communicate(timeout=60)
    assert (code, errors, consumer.returncode) == (0, "", 0)
    assert "Throughput produced:" in out
    assert "Aggregated throughput stats --- 300 records sent" in out
    assert "Aggregated throughput stats --- 300 records received" in received
    assert len(file.read_text().splitlines()) >= 3


def test_perf_prints_the_aggregate_when_interrupted(broker: BrokerProcess) -> None:
    with start("magnetar", "perf", "produce", "cli-4", "-u", broker.url, "-i", "0.1") as producer:
        assert producer.stdout is not None
        while "Throughput produced" not in producer.stdout.readline():
            pass
        producer.send_signal(signal.SIGINT)
        out, _ = producer.communicate(timeout=60)
    assert producer.returncode == 0
    assert "Aggregated latency stats" in out


def test_demo_shows_hits_and_no_misses() -> None:
    code, out, errors = run("magnetar.commands.demo", "--url", "pulsar://127.0.0.1:1", "-n", "400")
    assert (code, errors) == (0, "")
    assert "400 messages, in order" in out
    assert "2 refused once" in out
    assert "misses           0 entries" in out


def test_broker_of_a_killed_demo_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with start("magnetar.commands.demo", "--url", "pulsar://127.0.0.1:1") as demo:
        assert demo.stdout is not None
        address = urlsplit(demo.stdout.readline().split()[1])
        assert address.hostname is not None
        assert address.port is not None
        demo.kill()
    deadline = time.monotonic() + 60
    while accepts(address.hostname, address.port):
        assert time.monotonic() < deadline, "the broker outlived the demo"
        time.sleep(0.05)


def test_standalone_writes_the_ready_file_and_stops_cleanly(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, settings=())
    process.start()
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert sorted(ready) == ["admin", "pid", "pulsar"]
    assert process.logged("messaging service is ready")
    # A client's field without effect is named once, because no setting asks for it.
    for field in fields_without_effect():
        assert process.logged(field)
    assert process.stop() == 0


def test_standalone_exits_with_2_after_one_line_when_a_setting_is_wrong(tmp_path: Path) -> None:
    code, _, errors = run(
        "magnetar", "standalone", "--data", str(tmp_path), "--set", "brokerServicePort=ninety"
    )
    assert code == 2
    assert errors.count("\n") == 1
    assert "brokerServicePort" in errors


def test_broker_stops_on_sigterm_while_it_waits_for_its_bookie(tmp_path: Path) -> None:
    address = f"bookieAddress=127.0.0.1:{free_port()}"
    settings = ("--set", "brokerServicePort=0", "--set", address)
    with start("magnetar", "broker", "--data", str(tmp_path), *settings) as broker:
        assert broker.stderr is not None
        first_lines = broker.stderr.readline() + broker.stderr.readline()
        broker.terminate()
        _, errors = broker.communicate(timeout=60)
    assert broker.returncode == 0
    assert "no connection to the bookie" in first_lines
    assert f"the start waits for {address}: start that bookie, or name another one" in first_lines
    assert errors.count("\n") == 1
    assert "stopped before it was ready" in errors


def test_standalone_exits_with_1_after_one_line_when_the_data_folder_is_in_use(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, settings=())
    process.start()
    ports = ("--set", "brokerServicePort=0", "--set", "webServicePort=0")
    code, _, errors = run("magnetar", "standalone", "--data", str(tmp_path / "data"), *ports)
    process.close()
    assert code == 1
    assert errors.count("\n") == 1
    assert "cannot start" in errors


@pytest.mark.parametrize("role", ["standalone", "broker", "bookie"])
def test_start_is_refused_when_a_file_asks_for_a_missing_protection(role: str, tmp_path: Path) -> None:
    conf = tmp_path / "mine.conf"
    asking = (
        "bookieAuthProviderFactoryClass=org.example.Auth"
        if role == "bookie"
        else "saslJaasServerSectionName=Mine"
    )
    conf.write_text(f"# mine\n{asking}\n")
    code, out, errors = run("magnetar", role, "--config", str(conf), "--data", str(tmp_path / "data"))
    assert (code, out) == (2, "")
    assert errors.startswith(f"{conf}:2: {asking}: asks for authentication (not built); to go without, ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_ports_are_on_one_address_of_the_loopback(broker: BrokerProcess) -> None:
    for port in (broker.port, broker.http_port):
        assert accepts("127.0.0.1", port)
        assert not accepts("127.0.0.2", port), "on 0.0.0.0 this address would be served too"


def test_open_ports_are_logged_once(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, settings=("bindAddress=0.0.0.0",))
    process.start()
    assert process.logged("messaging service is ready")
    process.stop()
    log = (tmp_path / "broker.log").read_text()
    assert log.count("without authentication, everyone who reaches brokerServicePort and webServicePort") == 1
    assert log.count("without authentication") == 1


def test_start_that_fails_closes_the_bookie_cleanly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"brokerServicePort={taken.getsockname()[1]}"
        for _ in range(2):
            code, _, errors = run("magnetar", "standalone", "--data", str(tmp_path), "--set", port)
            assert code == 1
            assert "in use" in errors
            assert "not clean" not in errors
