"""The pytest plugin in runs of its own: a broker, a namespace per test, the report, and another Pulsar."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import magnetar
from broker.config.security_keys import TOKEN_PROVIDER
from tests.support.tokens import SECRET_URL, token

TESTS = """
import pulsar, pulsar.schema, pytest

NAMESPACES = []

class One(pulsar.schema.Record):
    number = pulsar.schema.Integer(required=True)

class Other(pulsar.schema.Record):
    text = pulsar.schema.String(required=True)

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

def test_forgets_a_producer_that_is_not_stored(client, pulsar_namespace):
    client.create_producer(f"non-persistent://{pulsar_namespace}/weather")

def test_has_a_schema_refused(client, pulsar_topic):
    client.create_producer(pulsar_topic, schema=pulsar.schema.JsonSchema(One)).close()
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(pulsar_topic, schema=pulsar.schema.JsonSchema(Other))

def test_tidies_up(client, pulsar_topic, pulsar_namespace):
    consumer = client.subscribe(pulsar_topic, "s")
    producer = client.create_producer(pulsar_topic)
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(60_000))
    consumer.close()
    producer.close()
    assert pulsar_namespace not in NAMESPACES

def test_leaves_a_fault(pulsar_broker):
    pulsar_broker.faults.refuse("PRODUCER", "AuthorizationError", times=0)

def test_meets_no_fault_of_another(client, pulsar_topic):
    client.create_producer(pulsar_topic).close()

def test_needs_the_clock(pulsar_broker, pulsar_admin_url):
    pulsar_broker.clock.advance(minutes=1)
"""


def run(folder: Path, *words: str, tests: str = TESTS) -> str:
    (folder / "test_app.py").write_text(tests)
    found_by_itself = "magnetar" in entry_points(group="pytest11").names
    # An environment from before the plugin does not name it; where it is found, naming it again is an error.
    named = [] if found_by_itself else ["-p", "magnetar.kit.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *named, "-p", "no:cacheprovider", "-rs", *words, "test_app.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_run_starts_a_broker_and_reports_what_is_left(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "7 passed" in said, said
    assert "left behind in Pulsar" in said
    assert "test_forgets_its_consumer: topic-" in said
    assert "subscription s: 1 consumer is open" in said
    assert "subscription s: 1 message in the backlog" in said
    assert "test_forgets_a_producer_that_is_not_stored: weather: 1 producer is open" in said
    assert "test_has_a_schema_refused: 1 schema refused as incompatible" in said
    assert "let it ask for pulsar_namespace" in said
    assert "test_leaves_a_fault: a fault has not happened: refuse on PRODUCER, at 1" in said
    for name in ("test_tidies_up", "test_meets_no_fault_of_another", "test_needs_the_clock"):
        assert f"{name}: " not in said


def test_processes_of_xdist_have_a_broker_each_and_one_report(tmp_path: Path) -> None:
    said = run(tmp_path, "-n", "2")
    assert "7 passed" in said, said
    assert "test_forgets_its_consumer: topic-" in said


def test_one_line_switches_to_another_pulsar(tmp_path: Path) -> None:
    with magnetar.Broker() as other:
        urls = ["--pulsar-url", other.pulsar_url, "--pulsar-admin-url", other.admin_url]
        said = run(tmp_path, *urls)
    assert "5 passed, 2 skipped" in said, said
    assert "a real Pulsar has no clock" in said
    assert "a real Pulsar commits no faults" in said


WITH_TOKEN = """
import pulsar

def test_message_arrives(pulsar_url, pulsar_topic, pulsar_token):
    client = pulsar.Client(pulsar_url, pulsar.AuthenticationToken(pulsar_token))
    consumer = client.subscribe(pulsar_topic, "s")
    client.create_producer(pulsar_topic).send(b"x")
    consumer.acknowledge(consumer.receive(60_000))
    client.close()
"""


def test_other_pulsar_may_ask_for_a_token(tmp_path: Path) -> None:
    settings = {
        "authenticationEnabled": True,
        "authenticationProviders": TOKEN_PROVIDER,
        "tokenSecretKey": SECRET_URL,
    }
    (tmp_path / "token").write_text(token({"sub": "tests"}) + "\n")
    with magnetar.Broker(settings=settings, token=token({"sub": "kit"})) as other:
        urls = ["--pulsar-url", other.pulsar_url, "--pulsar-admin-url", other.admin_url]
        assert "401" in run(tmp_path, *urls, tests=WITH_TOKEN)
        said = run(tmp_path, *urls, "--pulsar-token", f"file:{tmp_path / 'token'}", tests=WITH_TOKEN)
    assert "1 passed" in said, said


def test_token_for_no_pulsar_is_refused(tmp_path: Path) -> None:
    assert "--pulsar-token is for the Pulsar of --pulsar-url" in run(tmp_path, "--pulsar-token", "x")


def test_half_of_an_address_is_refused(tmp_path: Path) -> None:
    assert "--pulsar-url and --pulsar-admin-url go together" in run(tmp_path, "--pulsar-url", "pulsar://h:1")


WITH_CLIENT = """
import pulsar

def test_message_arrives(pulsar_client, pulsar_topic):
    consumer = pulsar_client.subscribe(pulsar_topic, "s")
    pulsar_client.create_producer(pulsar_topic).send(b"hello")
    consumer.acknowledge(consumer.receive(60_000))

def test_role_may_produce(pulsar_token_broker):
    token = pulsar_token_broker.token("app", {"public/default": ["produce"]})
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(pulsar_token_broker.pulsar_url, pulsar.AuthenticationToken(token), logger=logger)
    client.create_producer("t").send(b"hello")
    client.close()
"""


def test_client_of_the_fixture_is_quiet_and_tokens_have_a_broker(tmp_path: Path) -> None:
    said = run(tmp_path, "-s", tests=WITH_CLIENT)
    assert "2 passed" in said, said
    # The lines of the client's logger begin with a time and a level.
    assert " INFO " not in said, said
    assert "left behind" not in said, said
