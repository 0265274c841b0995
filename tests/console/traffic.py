"""A broker with traffic that lasts: topics with and without a schema, subscriptions that keep up, lag and leave holes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulsar

from tests.interop.support import Admin, connect, publish, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS: Final = {
    "managedLedgerMaxEntriesPerLedger": "400",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerCacheSizeMB": "1",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
"""Several ledgers after some seconds, and a cache that evicts."""
QUIET_TOPICS: Final = 120
"""Topics without clients, so that their list has pages."""
_PAUSE_S: Final = 0.02


class Order(pulsar.schema.Record):  # type: ignore[misc]  # pulsar-client has no types
    """The messages of the topic `orders`."""

    id = pulsar.schema.Integer()
    item = pulsar.schema.String()
    price = pulsar.schema.Double()


class Traffic:
    """Threads that publish and consume until the end."""

    def __init__(self, client: pulsar.Client) -> None:
        self._client = client
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def publish(self, topic: str, message: Callable[[int], object], schema: object = None) -> None:
        """Publishes message after message, fifty a second."""
        options = {} if schema is None else {"schema": schema}
        producer = self._client.create_producer(topic, **options)

        def run() -> None:
            for number in itertools.count():
                if self._ended.wait(_PAUSE_S):
                    return
                producer.send_async(message(number), _ignore, partition_key=f"key {number % 5}")

        self._start(run)

    def consume(self, topic: str, name: str, *, skipped: int = 0, pause_s: float = 0.0) -> None:
        """Acknowledges all messages, with `skipped` all but each of this number."""
        consumer = self._client.subscribe(topic, name, consumer_type=pulsar.ConsumerType.Shared)

        def run() -> None:
            for number in itertools.count():
                if self._ended.wait(pause_s):
                    return
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                if not skipped or number % skipped:
                    consumer.acknowledge(message)

        self._start(run)

    def end(self) -> None:
        """Stops and waits for all threads."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)


def _ignore(*_: object) -> None:
    """A receipt that nothing waits for."""


@contextmanager
def busy_broker(folder: Path, *, test_faults: bool = False) -> Iterator[BrokerProcess]:
    """Runs a broker whose topic `orders` has several ledgers before this returns."""
    with BrokerProcess(folder, SETTINGS, test_faults=test_faults) as broker:
        admin = Admin(broker.addresses.admin)
        # Before there are topics: those of a bundle that moves are open no more.
        if len(broker.pids) > 1:
            take_all(broker, admin)
        for number in range(QUIET_TOPICS):
            admin.put(f"persistent/public/default/quiet-{number:03}")
        client = connect(broker.addresses.pulsar)
        client.subscribe("orders", "audit-trail").close()
        schema = pulsar.schema.JsonSchema(Order)
        first = client.create_producer("orders", schema=schema, batching_enabled=False)
        publish(first, [_order(number) for number in range(900)])
        first.close()
        traffic = Traffic(client)
        traffic.consume("orders", "billing", skipped=9)
        traffic.consume("orders", "shipping")
        traffic.consume("orders", "slow-report", pause_s=0.5)
        traffic.consume("clicks", "analytics")
        traffic.publish("orders", _order, schema)
        traffic.publish("clicks", lambda _: b"x" * 900)
        wait_until(lambda: admin.stats("orders")["msgOutCounter"], "messages that were delivered")
        try:
            yield broker
        finally:
            traffic.end()
            client.close()


def take_all(broker: BrokerProcess, admin: Admin) -> None:
    """Moves the bundles of the namespace to the first broker of the cluster: a console has rates of its own topics alone."""
    port = broker.addresses.admin.rpartition(":")[2]
    brokers, bundles = admin.get("brokers"), admin.get("namespaces/public/default/bundles")
    assert isinstance(brokers, list)
    assert isinstance(bundles, dict)
    name = next(one for one in map(str, brokers) if one.endswith(f":{port}"))
    bounds = bundles["boundaries"]
    assert isinstance(bounds, list)
    for low, high in itertools.pairwise(bounds):
        admin.put(f"namespaces/public/default/{low}_{high}/unload?destinationBroker={name}")
    owners = {admin.owner_url(f"quiet-{number:03}") for number in range(QUIET_TOPICS)}
    assert owners == {f"http://{name}"}


def _order(number: int) -> Order:
    return Order(id=number, item=f"item {number % 17}", price=number * 1.25)
