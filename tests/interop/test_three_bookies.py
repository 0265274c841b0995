"""A broker on three bookies of their own: one is killed under load, the broker restarts, nothing is missing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import connect
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.vectors.broker_process import BrokerProcess

RECEIVE_MS = 60_000


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieProcesses]:
    with BookieProcesses(tmp_path / "bookies", 3) as running:
        yield running


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[BookieProcesses]:
    """One more than an ensemble has."""
    with BookieProcesses(tmp_path / "bookies", 4) as running:
        yield running


def settings_on(bookies: BookieProcesses) -> dict[str, str]:
    return {**ensemble_settings(bookies.addresses), "managedLedgerDefaultMarkDeleteRateLimit": "0"}


class Load:
    """Sends numbers one after the other, each acknowledged, until told to stop."""

    def __init__(self, producer: pulsar.Producer) -> None:
        self._producer = producer
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self.sent = 0
        self.error: pulsar.PulsarException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.send(b"%d" % self.sent)
            except pulsar.PulsarException as error:
                self.error = error
                break
            with self._moved:
                self.sent += 1
                self._moved.notify_all()
        with self._moved:
            self._moved.notify_all()

    def wait_for(self, count: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self.sent >= count or self.error is not None, 60)
        assert self.error is None, self.error

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(60)
        assert self.error is None, self.error
        return self.sent


def received(consumer: pulsar.Consumer, count: int) -> list[int]:
    """So many different numbers, in the order in which each came first."""
    found: dict[int, None] = {}
    while len(found) < count:
        message = consumer.receive(RECEIVE_MS)
        found[int(message.data())] = None
        consumer.acknowledge(message)
    return list(found)


def test_a_bookie_is_killed_and_the_broker_restarts(tmp_path: Path, bookies: BookieProcesses) -> None:
    broker = BrokerProcess(tmp_path / "broker", settings_on(bookies))
    (tmp_path / "broker").mkdir()
    with broker:
        client = connect(broker.addresses.pulsar)
        consumer = client.subscribe("t", "s")
        consumer.close()
        load = Load(client.create_producer("t", batching_enabled=False))
        load.wait_for(200)
        bookies.bookies[1].kill()
        load.wait_for(load.sent + 200)
        sent = load.stop()
        client.close()
    assert any("goes on" in line or "takes no more entries" in line for line in broker.log_lines())
    with broker:  # one bookie is still dead
        client = connect(broker.addresses.pulsar)
        consumer = client.subscribe("t", "s")
        assert received(consumer, sent) == list(range(sent))
        client.create_producer("t").send(b"%d" % sent)
        assert received(consumer, 1) == [sent]
        client.close()


def test_a_broker_that_was_killed_recovers_its_ledgers(tmp_path: Path, spare: BookieProcesses) -> None:
    """With entries under a password. The entry that was on its way may have to go to the dead bookie, so one is to
    spare that takes its place: without it the recovery waits for the dead one, as BookKeeper's does."""
    digest = {"managedLedgerDigestType": "MAC", "managedLedgerPassword": "secret"}
    ensemble = {**settings_on(spare), "managedLedgerDefaultEnsembleSize": "3"}
    broker = BrokerProcess(tmp_path / "broker", {**ensemble, **digest})
    (tmp_path / "broker").mkdir()
    broker.start()
    client = connect(broker.addresses.pulsar)
    client.subscribe("t", "s").close()
    load = Load(client.create_producer("t", batching_enabled=False))
    load.wait_for(100)
    broker.kill()
    spare.bookies[2].kill()
    confirmed = load.sent
    # The client may not have let go of the broken connection yet.
    with contextlib.suppress(pulsar.NotConnected):
        client.close()
    with broker:
        client = connect(broker.addresses.pulsar)
        assert received(client.subscribe("t", "s"), confirmed) == list(range(confirmed))
        client.close()
