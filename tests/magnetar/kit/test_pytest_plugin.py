"""The pytest plugin in runs of its own: a broker, a namespace per test, the report, and another Pulsar."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import magnetar

TESTS = """
import pulsar, pytest

NAMESPACES = []

@pytest.fixture
def client(pulsar_url):
    client = pulsar.Client(pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()

def test_forgets_its_consumer(client, pulsar_topic, pulsar_namespace):
    consumer = client.subscribe(pulsar_topic, "s")
    client.create_producer(pulsar_topic).send(b"x")
    consumer.receive(60_000)
    NAMESPACES.append(pulsar_namespace)

def test_tidies_up(client, pulsar_topic, pulsar_namespace):
    consumer = client.subscribe(pulsar_topic, "s")
    producer = client.create_producer(pulsar_topic)
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(60_000))
    consumer.close()
    producer.close()
    assert pulsar_namespace not in NAMESPACES

def test_needs_the_clock(pulsar_broker, pulsar_admin_url):
    pulsar_broker.clock.advance(minutes=1)
"""


def run(folder: Path, *words: str) -> str:
    (folder / "test_app.py").write_text(TESTS)
    found_by_itself = "magnetar" in entry_points(group="pytest11").names
    # An environment from before the plugin does not name it; where it is found, naming it again is an error.
    named = [] if found_by_itself else ["-p", "magnetar.kit.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *named, "-p", "no:cacheprovider", "-rs", *words, "test_app.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_run_starts_a_broker_and_reports_what_is_left(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "3 passed" in said, said
    assert "left behind in Pulsar" in said
    assert "test_forgets_its_consumer: topic-" in said
    assert "subscription s: 1 consumers are open" in said
    assert "subscription s: 1 messages in the backlog" in said
    assert "test_tidies_up: " not in said


def test_processes_of_xdist_have_a_broker_each_and_one_report(tmp_path: Path) -> None:
    said = run(tmp_path, "-n", "2")
    assert "3 passed" in said, said
    assert "test_forgets_its_consumer: topic-" in said


def test_one_line_switches_to_another_pulsar(tmp_path: Path) -> None:
    with magnetar.Broker() as other:
        urls = ["--pulsar-url", other.pulsar_url, "--pulsar-admin-url", other.admin_url]
        said = run(tmp_path, *urls)
    assert "2 passed, 1 skipped" in said, said
    assert "a real Pulsar has no clock" in said


def test_half_of_an_address_is_refused(tmp_path: Path) -> None:
    assert "--pulsar-url and --pulsar-admin-url go together" in run(tmp_path, "--pulsar-url", "pulsar://h:1")
