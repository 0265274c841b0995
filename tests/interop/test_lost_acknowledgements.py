"""A consumer that loses every hundredth acknowledgement, with and without `unackedHoleRedeliveryPendingSeconds`.

`MAGNETAR_HOLES_SECONDS` chooses how long; the test prints backlog and acknowledged ranges at each fifth of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pulsar
import pytest

from foundation.value import Json
from tests.interop.support import Admin, wait_until
from tests.vectors.broker_process import BrokerProcess

SECONDS: Final = float(os.environ.get("MAGNETAR_HOLES_SECONDS", "20"))
PENDING_S: Final = 30 if SECONDS >= 300 else 2
"""With a look at least every so many seconds an entry comes again after up to twice of it."""
RATE: Final = 50
"""Messages a second for each topic."""
LOST: Final = 100
"""One acknowledgement of so many is lost, also one of a redelivery."""
KEPT: Final = "kept"
"""The topic with the policy."""
TOPICS: Final = ("without", KEPT)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS + 300)]


class Losing:
    """A producer and a Shared consumer of one topic, each in a thread of its own."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent = self.received = self.lost = 0
        self.loses = True
        """False from when on no acknowledgement is lost."""
        self._consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        self._producer = client.create_producer(topic, batching_enabled=False)
        self._sending, self._receiving = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def stop_sending(self) -> None:
        self._sending.set()
        self._threads[0].join()

    def end(self) -> None:
        self._receiving.set()
        self._threads[1].join()

    def _send(self) -> None:
        while not self._sending.wait(1 / RATE):
            self._producer.send(b"%d" % self.sent)
            self.sent += 1

    def _receive(self) -> None:
        while not self._receiving.is_set():
            try:
                message = self._consumer.receive(100)
            except pulsar.Timeout:
                continue
            self.received += 1
            if self.loses and self.received % LOST == 0:
                self.lost += 1
            else:
                self._consumer.acknowledge(message)


def state(admin: Admin, topic: str) -> tuple[int, int]:
    """Returns the backlog and the number of acknowledged ranges after its first entry."""
    stored = admin.get(f"persistent/public/default/{topic}/internalStats")
    assert isinstance(stored, dict)
    cursors = stored["cursors"]
    assert isinstance(cursors, dict)
    cursor = cursors["s"]
    assert isinstance(cursor, dict)
    ranges, backlog = (
        cursor["totalNonContiguousDeletedMessagesRange"],
        admin.subscription(topic, "s")["msgBacklog"],
    )
    assert isinstance(ranges, int)
    assert isinstance(backlog, int)
    return backlog, ranges


def test_lost_acknowledgements_leave_no_backlog_with_the_key(
    tmp_path: Path, connected: Callable[[str], pulsar.Client]
) -> None:
    with BrokerProcess(tmp_path, {"unackedHoleRedeliveryPeriodSeconds": "1"}) as broker:
        admin, client = Admin.of(broker), connected(broker.addresses.pulsar)
        clients = {topic: Losing(client, topic) for topic in TOPICS}
        policy: Json = {"enabled": True, "periodSeconds": 1, "pendingSeconds": PENDING_S}
        admin.post(f"persistent/public/default/{KEPT}/unackedHoleRedelivery", policy)
        for fifth in range(1, 6):
            threading.Event().wait(SECONDS / 5)
            found = {topic: state(admin, topic) for topic in TOPICS}
            again = clients[KEPT].received - clients[KEPT].sent
            print(
                f"after {fifth * SECONDS / 5:.0f} s, (backlog, ranges): {found}, some {again} delivered again"
            )
        for one in clients.values():
            one.stop_sending()
            wait_until(lambda one=one: one.received >= one.sent, "every message came")  # type: ignore[misc]
            one.loses = False
        lost = clients["without"].lost
        wait_until(
            lambda: admin.subscription("without", "s")["msgBacklog"] == lost, "the others are acknowledged"
        )
        # An entry after which nothing is acknowledged is no hole.
        last = client.create_producer(KEPT, batching_enabled=False)
        last.send(b"end")
        wait_until(lambda: admin.subscription(KEPT, "s")["msgBacklog"] == 0, "each hole is filled", 120)
        assert admin.subscription("without", "s")["msgBacklog"] == lost > 0
        for one in clients.values():
            one.end()
