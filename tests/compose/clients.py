"""Clients that keep a broker busy in every way that boards show.

Messages are sent again, expire, wait for a time, are compacted or reach no consumer; the miss ratio curve is sampled,
and a transaction is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import threading
import urllib.request
from collections.abc import Iterator
from typing import Final

import pulsar

from tests.support.raw_client import RawConnection

BURST: Final = 20
"""Messages sent, and read, at a time."""
NAMESPACE: Final = "public/default"
LEFT: Final = f"persistent://{NAMESPACE}/left-by-all"
"""A topic whose messages are compacted and expire."""


@contextlib.contextmanager
def at_work(admin: str, service: str) -> Iterator[None]:
    """Runs the clients until the block ends; raises what failed in their thread."""
    ended, failed = threading.Event(), list[Exception]()
    with contextlib.closing(Clients(admin, service)) as clients:
        clients.prepare()

        def work() -> None:
            try:
                while not ended.wait(0.02):
                    clients.turn()
            except Exception as error:  # noqa: BLE001 - The test's own thread raises it.
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
    assert not failed, failed


class Clients:
    """Producers and consumers of all sorts."""

    def __init__(self, admin: str, service: str) -> None:
        """`admin` and `service` are URLs of the broker."""
        self._admin, self._service = admin, service
        self._client = pulsar.Client(service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._sent = list[pulsar.MessageId]()
        self._turns = 0

    def prepare(self) -> None:
        """Opens the topics, and a transaction that stays open."""
        client, shared = self._client, pulsar.ConsumerType.Shared
        self._keeps_up = client.subscribe("boards", "s")
        self._again = client.subscribe(
            "boards", "again", consumer_type=shared, negative_ack_redelivery_delay_ms=100
        )
        client.subscribe("boards", "behind", consumer_type=shared, receiver_queue_size=10)
        client.subscribe(LEFT, "s").close()
        client.subscribe(f"non-persistent://{NAMESPACE}/lost", "s")
        self._producer = client.create_producer("boards")
        self._left = client.create_producer(LEFT)
        self._lost = client.create_producer(f"non-persistent://{NAMESPACE}/lost")
        for key in range(3 * BURST):
            self._left.send(b"x" * 700, partition_key=str(key % 3))
        self._ask(f"/admin/v2/persistent/{NAMESPACE}/left-by-all/compaction", "PUT")
        self._ask(f"/admin/v2/persistent/{NAMESPACE}/left-by-all/messageTTL?messageTTL=1", "POST")
        # As `magnetar admin audit` tells it.
        self._ask("/admin/v2/magnetar/audit", "POST", b'{"findings": {"orphan": 0}}')
        asyncio.run(transaction(self._service))

    def turn(self) -> None:
        """Sends and reads a burst, some of it twice, and some of it from storage."""
        for _ in range(BURST):
            self._sent.append(self._producer.send(b"x" * 700))
            self._keeps_up.acknowledge(self._keeps_up.receive(timeout_millis=60_000))
            message = self._again.receive(timeout_millis=60_000)
            sent_twice = message.redelivery_count() == 0 and self._turns % 10 == 0
            (self._again.negative_acknowledge if sent_twice else self._again.acknowledge)(message)
            self._lost.send(b"x")
        self._producer.send(b"later", deliver_after=datetime.timedelta(hours=1))
        # Any older place, so that the entries have left the caches.
        first = self._turns * 7 * BURST % max(len(self._sent) - BURST, 1)
        reader = self._client.create_reader("boards", self._sent[first])
        for _ in range(BURST - 1):
            reader.read_next(timeout_millis=60_000)
        reader.close()
        if self._turns % 50 == 0:
            # The sampling for the miss ratio curve begins with this request.
            self._ask("/admin/v2/magnetar/console/cache", "GET")
        self._turns += 1

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _ask(self, path: str, method: str, body: bytes | None = None) -> None:
        headers = {"Content-Type": "application/json"} if body else {}
        request = urllib.request.Request(self._admin + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=60):
            pass


async def transaction(service: str) -> None:
    """Begins a transaction, so that a coordinator is open; it ends by its timeout."""
    cnx = await RawConnection.open(service)
    await cnx.connect()
    cnx.send("TC_CLIENT_CONNECT_REQUEST", request_id=1, tc_id=0)
    await cnx.receive("TC_CLIENT_CONNECT_RESPONSE")
    cnx.send("NEW_TXN", request_id=2, txn_ttl_seconds=1000, tc_id=0)
    await cnx.receive("NEW_TXN_RESPONSE")
    await cnx.close()
