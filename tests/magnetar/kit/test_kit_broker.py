"""magnetar.Broker with an official client: its life, its clock, its faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest

import magnetar
from magnetar.kit import BrokerFailedError, Clock, Faults
from magnetar.kit.errors import KitError
from magnetar.kit.left_behind import left_in
from tests.interop.support import connect
from tests.support.tokens import SECRET_URL, token
from tests.vectors.broker_process import BrokerProcess

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[magnetar.Broker]:
    settings = {
        "subscriptionExpirationTimeMinutes": 60,
        "transactionCoordinatorEnabled": False,
        "preciseTimeBasedBacklogQuotaCheck": True,
    }
    with magnetar.Broker(settings=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def no_fault_is_left(broker: magnetar.Broker) -> Iterator[None]:
    yield
    broker.faults.clear()


@pytest.fixture
def client(broker: magnetar.Broker) -> Iterator[pulsar.Client]:
    client = connect(broker.pulsar_url)
    yield client
    with contextlib.suppress(pulsar.PulsarException):
        client.close()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "Z"


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        time.sleep(0.01)


def test_restart_keeps_ports_and_data(tmp_path: Path) -> None:
    with magnetar.Broker(tmp_path / "data") as broker:
        urls, topic = (broker.pulsar_url, broker.admin_url), broker.topic()
        client = connect(broker.pulsar_url)
        client.subscribe(topic, "s")
        client.create_producer(topic).send(b"kept")
        client.close()
        broker.restart()
        broker.kill()
        broker.start()
        assert (broker.pulsar_url, broker.admin_url) == urls
        client = connect(broker.pulsar_url)
        assert client.subscribe(topic, "s").receive(WAIT_MS).data() == b"kept"
        client.close()
        with pytest.raises(KitError, match="runs already"):
            broker.start()


async def test_broker_works_as_an_asynchronous_context() -> None:
    async with magnetar.Broker() as broker:
        pid = broker.pid
        assert broker.pulsar_url.startswith("pulsar://")
    assert is_gone(pid)


def test_broker_ends_with_a_parent_that_is_killed_and_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import magnetar, time; b = magnetar.Broker(); b.start(); b.restart()\n"
        "print(b.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: is_gone(pid))
    assert list(tmp_path.iterdir()) == []


def test_log_goes_on_after_a_restart() -> None:
    with magnetar.Broker() as broker:
        broker.restart()
        wait_until(lambda: broker.log.count("messaging service is ready") == 2)
    assert broker.log == ""


def test_kit_loads_nothing_else_of_the_package() -> None:
    program = "import sys, magnetar; magnetar.Broker; import magnetar.kit; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    ours = {
        name for name in loaded.split() if name.split(".")[0] in ("magnetar", "broker", "protocol", "uvloop")
    }
    assert {name for name in ours if not name.startswith("magnetar.kit")} == {"magnetar"}


def test_start_that_fails_shows_the_setting() -> None:
    with pytest.raises(BrokerFailedError, match="brokerServicePort"):
        magnetar.Broker(settings={"brokerServicePort": "no port"}).start()


def test_misspelt_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        BrokerFailedError, match=r"brokerDedupEnabled .* did you mean brokerDeduplicationEnabled\?"
    ):
        magnetar.Broker(settings={"brokerDedupEnabled": True}).start()


def test_namespace_that_a_restart_has_lost_is_named_in_the_report(broker: magnetar.Broker) -> None:
    (line,) = left_in(broker, "public/never", 0)
    assert line.startswith("public/never is gone")


def test_use_before_the_start_says_how_to_start() -> None:
    with pytest.raises(KitError, match="with Broker"):
        _ = magnetar.Broker().pulsar_url


def test_end_of_input_needs_a_pipe() -> None:
    command = [sys.executable, "-m", "magnetar", "standalone", "--memory", "--until-eof"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "--until-eof: standard input is no pipe; start the broker with one, and keep its other end open\n",
    )


# Clock


def test_delayed_messages_come_when_the_clock_has_passed_their_time(
    broker: magnetar.Broker, client: pulsar.Client
) -> None:
    topic = broker.topic()
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    for hours in (3, 1, 2):
        producer.send(b"%d" % hours, deliver_after=timedelta(hours=hours))
    for hours in (1, 2, 3):
        producer.send(b"not delayed")
        # In order of delivery: an early delayed message would come before this one.
        assert consumer.receive(WAIT_MS).data() == b"not delayed"
        broker.clock.advance(hours=1)
        assert consumer.receive(WAIT_MS).data() == b"%d" % hours


def test_delay_counts_from_the_clock_of_now(broker: magnetar.Broker, client: pulsar.Client) -> None:
    """The client computes the delivery time by the machine's clock, which is behind the broker's."""
    broker.clock.advance(days=1)
    topic = broker.topic()
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"later", deliver_after=timedelta(minutes=10))
    producer.send(b"now")
    assert consumer.receive(WAIT_MS).data() == b"now"
    broker.clock.advance(minutes=10, seconds=1)
    assert consumer.receive(WAIT_MS).data() == b"later"


@pytest.mark.parametrize("hours", [7, pytest.param(7 * 24, marks=pytest.mark.slow)])
def test_time_to_live_passes_at_once(broker: magnetar.Broker, client: pulsar.Client, hours: int) -> None:
    namespace = broker.namespace()
    broker.ask("POST", f"/admin/v2/namespaces/{namespace}/messageTTL", hours * 3600)
    topic = broker.topic(namespace=namespace)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"old")
    assert consumer.receive(WAIT_MS).data() == b"old"
    stats = f"/admin/v2/{topic.replace('://', '/')}/stats"

    def backlog() -> object:
        found: Any = broker.ask("GET", stats)
        return found["subscriptions"]["s"]["msgBacklog"]

    broker.clock.advance(hours=hours * 6 // 7)
    assert backlog() == 1
    broker.clock.advance(hours=hours // 7, minutes=6)
    assert backlog() == 0


def test_old_backlog_goes_by_the_quota_of_its_age(broker: magnetar.Broker, client: pulsar.Client) -> None:
    namespace = broker.namespace()
    quota = {"limitTime": 3600, "limitSize": -1, "policy": "consumer_backlog_eviction"}
    path = f"/admin/v2/namespaces/{namespace}/backlogQuota?backlogQuotaType=message_age"
    broker.ask("POST", path, quota)
    topic = broker.topic(namespace=namespace)
    client.subscribe(topic, "s")
    client.create_producer(topic).send(b"old")
    broker.clock.advance(minutes=50)
    assert subscriptions(broker, topic)["s"]["msgBacklog"] == 1
    broker.clock.advance(minutes=20)
    wait_until(lambda: subscriptions(broker, topic)["s"]["msgBacklog"] == 0)


def test_ledger_is_kept_for_the_time_of_retention(broker: magnetar.Broker, client: pulsar.Client) -> None:
    namespace = broker.namespace()
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    broker.ask("POST", f"/admin/v2/namespaces/{namespace}/retention", retention)
    topic = broker.topic(namespace=namespace)
    client.create_producer(topic).send(b"kept for an hour")
    # The next open begins another ledger, so that the first one may be trimmed.
    broker.unload(topic)
    client.create_producer(topic)

    def entries() -> object:
        found: Any = broker.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/internalStats")
        return found["numberOfEntries"]

    broker.clock.advance(minutes=50)
    assert entries() == 1
    broker.clock.advance(minutes=20)
    wait_until(lambda: entries() == 0)


def test_cached_entries_leave_after_their_time(broker: magnetar.Broker, client: pulsar.Client) -> None:
    topic = broker.topic()
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"cached")
    assert consumer.receive(WAIT_MS).data() == b"cached"
    broker.clock.advance(minutes=1)
    found: Any = broker.ask("GET", "/admin/v2/magnetar/console/cache")
    assert found["entries"] == 0
    assert found["evicted"]["ttl"]["entries"] > 0


def test_unused_topic_goes_after_its_time(broker: magnetar.Broker, client: pulsar.Client) -> None:
    namespace = broker.namespace()
    topic = broker.topic(namespace=namespace)
    client.create_producer(topic).close()
    broker.clock.advance(minutes=5)
    wait_until(lambda: broker.ask("GET", f"/admin/v2/persistent/{namespace}") == [])


def test_unused_subscription_goes_after_its_time(broker: magnetar.Broker, client: pulsar.Client) -> None:
    topic = broker.topic()
    client.subscribe(topic, "unused").close()
    client.subscribe(topic, "used")
    wait_until(lambda: not subscriptions(broker, topic)["unused"]["consumers"])
    broker.clock.advance(minutes=70)
    assert [*subscriptions(broker, topic)] == ["used"]


def subscriptions(broker: magnetar.Broker, topic: str) -> dict[str, Any]:
    found: Any = broker.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    subscriptions: dict[str, Any] = found["subscriptions"]
    return subscriptions


def test_token_expires_by_the_clock() -> None:
    settings = {
        "authenticationEnabled": True,
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": SECRET_URL,
    }
    with magnetar.Broker(settings=settings, token=token({"sub": "kit"})) as broker:
        given: list[str] = []

        def fresh() -> str:
            given.append(token({"sub": "app", "exp": time.time() + (86_400 if given else 3600)}))
            return given[-1]

        client = pulsar.Client(broker.pulsar_url, pulsar.AuthenticationToken(fresh))
        producer = client.create_producer("t")
        # The client asks for a token for each connection; the first one expires first.
        asked = len(given)
        broker.clock.advance(hours=2)
        wait_until(lambda: len(given) > asked)
        producer.send(b"still connected")
        client.close()
        old = pulsar.AuthenticationToken(given[0])
        late = pulsar.Client(broker.pulsar_url, old, operation_timeout_seconds=2)
        # This client tries again until its time is over.
        with pytest.raises((pulsar.Timeout, pulsar.AuthenticationError)):
            late.create_producer("t")
        late.close()


def test_advance_that_is_no_time_is_refused(broker: magnetar.Broker) -> None:
    for length in ({}, {"seconds": -1}, {"days": 1_000_000}):
        with pytest.raises(KitError, match="400 advance_ms="):
            broker.clock.advance(**length)


# Faults


def test_connection_drops_at_the_third_ack(broker: magnetar.Broker, client: pulsar.Client) -> None:
    topic = broker.topic()
    consumer = client.subscribe(topic, "s", unacked_messages_timeout_ms=None)
    producer = client.create_producer(topic)
    fault = broker.faults.drop("ACK", at=3)
    sent = [b"%d" % number for number in range(5)]
    got: list[bytes] = []
    for data in sent:
        producer.send(data)
    while not fault.fired or set(got) != set(sent):
        message = consumer.receive(WAIT_MS)
        got.append(message.data())
        consumer.acknowledge(message)
        # Acknowledgements of one interval travel together.
        wait_until(lambda: fault.seen >= min(len(got), 3) or fault.fired)
    fault.assert_fired(1)


def test_lookup_is_tried_again_after_two_refusals(broker: magnetar.Broker, client: pulsar.Client) -> None:
    fault = broker.faults.refuse("LOOKUP", "ServiceNotReady", times=2)
    client.create_producer(broker.topic()).send(b"x")
    fault.assert_fired(2)


@pytest.mark.parametrize("error", ["PersistenceError", "UnknownError", "MetadataError"])
def test_refused_send_is_told_or_sent_again(
    broker: magnetar.Broker, client: pulsar.Client, error: str
) -> None:
    producer = client.create_producer(broker.topic())
    fault = broker.faults.refuse("SEND", error)
    producer.send(b"x")
    fault.assert_fired(1)


def test_delayed_receipt_comes_late_and_once(broker: magnetar.Broker, client: pulsar.Client) -> None:
    topic = broker.topic()
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    fault = broker.faults.delay("SEND_RECEIPT", 0.3)
    began = time.monotonic()
    producer.send(b"slow")
    assert time.monotonic() - began >= 0.3
    producer.send(b"next")
    assert [consumer.receive(WAIT_MS).data() for _ in range(2)] == [b"slow", b"next"]
    fault.assert_fired(1)


@pytest.mark.parametrize("error", ["FullDisk", "Fenced"])
def test_message_survives_a_storage_that_refuses_it_once(
    broker: magnetar.Broker, client: pulsar.Client, error: str
) -> None:
    topic = broker.topic()
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    producer.send(b"before")
    fault = broker.faults.refuse("STORAGE_ADD", error)
    producer.send(b"after")
    fault.assert_fired(1)
    # Only now: the refusal makes the client connect anew, and a consumer of the old connection may get "before" twice.
    consumer = client.subscribe(topic, "s")
    assert [consumer.receive(WAIT_MS).data() for _ in range(2)] == [b"before", b"after"]


def test_lost_metadata_session_fails_what_needs_it(broker: magnetar.Broker) -> None:
    fault = broker.faults.refuse("METADATA_WRITE", "SessionLost")
    with pytest.raises(KitError, match="session"):
        broker.ask("PUT", "/admin/v2/namespaces/public/never")
    fault.assert_fired(1)
    broker.ask("PUT", "/admin/v2/namespaces/public/never")


def test_fault_that_has_not_happened_is_named(broker: magnetar.Broker) -> None:
    fault = broker.faults.lose("SEEK", at=2)
    assert [*broker.faults.unfired()] == ["lose on SEEK, at 2: its event occurred 0 times"]
    with pytest.raises(AssertionError, match="happened 0 times"):
        fault.assert_fired()
    fault.remove()
    assert broker.faults.all() == []


def test_fault_that_cannot_happen_is_refused(broker: magnetar.Broker) -> None:
    with pytest.raises(KitError, match="400 error='Fenced'"):
        broker.faults.refuse("SEND", "Fenced")


def test_broker_without_test_controls_names_the_flag(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, memory=True) as plain:
        for controls in (Clock(plain.addresses.admin).now, Faults(plain.addresses.admin).all):
            with pytest.raises(
                KitError, match="404 the broker has no test controls: start it with --test-faults"
            ):
                controls()


def test_broker_runs_the_code_that_was_imported_and_no_module_of_the_test(tmp_path: Path) -> None:
    source, own = tmp_path / "source", tmp_path / "own"
    shutil.copytree(Path(magnetar.__file__).parent, source / "magnetar")
    report = "from importlib.util import find_spec\nprint('the copy runs beside', find_spec('module_of_the_test'))\n"
    (source / "magnetar" / "__main__.py").write_text(report)
    own.mkdir()
    (own / "module_of_the_test.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import module_of_the_test, magnetar; magnetar.Broker().start()"],
        cwd=own,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, own)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the copy runs beside None" in done.stderr


def test_token_of_the_kit_has_the_rights_that_it_was_given() -> None:
    with magnetar.Broker(tokens=True) as broker:
        allowed = broker.token("app", {"public/default": ["produce"]})
        client = pulsar.Client(broker.pulsar_url, pulsar.AuthenticationToken(allowed))
        client.create_producer("t").send(b"allowed")
        client.close()
        stranger = pulsar.AuthenticationToken(broker.token("stranger"))
        refused = pulsar.Client(broker.pulsar_url, stranger, operation_timeout_seconds=2)
        with pytest.raises((pulsar.AuthorizationError, pulsar.Timeout)):
            refused.create_producer("t")
        refused.close()


def test_permissions_of_a_token_are_refused_with_the_wrong_word_and_the_remedy() -> None:
    with magnetar.Broker(tokens=True) as broker:
        with pytest.raises(KitError, match="400 'produc' is not an action; allowed are produce, consume"):
            broker.token("app", {"public/default": ["produc"]})
        with pytest.raises(KitError, match="'public' is not a namespace: give tenant/namespace"):
            broker.token("app", {"public": ["produce"]})


def test_token_of_a_broker_without_tokens_is_refused() -> None:
    with pytest.raises(KitError, match="make it with Broker\\(tokens=True\\)"):
        magnetar.Broker().token("app")
