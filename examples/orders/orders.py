"""A small shop on Pulsar: orders are placed, paid, reminded of, and kept as a table of the latest state.

The application knows Pulsar by its official client alone. Its tests (`test_orders.py`) show what Magnetar's kit is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

import pulsar
from pulsar.schema import Float, JsonSchema, Record, String

REMINDER_AFTER: Final = timedelta(hours=1)
PAYMENT_TRIES: Final = 3


class Order(Record):  # type: ignore[misc]  # The client has no types.
    """An order as it is sent."""

    id = String(required=True)
    customer = String(required=True)
    amount = Float(required=True)
    state = String(required=True, default="placed")


class Declined(Exception):
    """The payment was refused; another try may succeed."""


class Shop:
    """The shop's topics in one namespace."""

    def __init__(self, client: pulsar.Client, namespace: str) -> None:
        self._client = client
        self._at = f"persistent://{namespace}"

    def topic(self, name: str) -> str:
        """The full name of a topic of the shop."""
        return f"{self._at}/{name}"

    def orders(self, name: str | None = None) -> pulsar.Producer:
        """A producer of orders; with a name, the broker drops what it sends twice."""
        return self._client.create_producer(
            self.topic("orders"), producer_name=name, schema=JsonSchema(Order), batching_enabled=False
        )

    def place(self, orders: pulsar.Producer, order: Order) -> None:
        """Sends an order; those of one customer stay in order."""
        orders.send(order, partition_key=order.customer)

    def payments(self, mode: pulsar.ConsumerType = pulsar.ConsumerType.Shared) -> pulsar.Consumer:
        """A consumer of orders to be paid. An order that fails PAYMENT_TRIES times goes to the topic `unpaid`."""
        shared = mode in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
        unpaid = pulsar.ConsumerDeadLetterPolicy(PAYMENT_TRIES - 1, self.topic("unpaid"), "kept")
        return self._client.subscribe(
            self.topic("orders"),
            "payments",
            mode,
            schema=JsonSchema(Order),
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=10,
            dead_letter_policy=unpaid if shared else None,
        )

    def pay_next(self, payments: pulsar.Consumer, pay: Callable[[Order], None], wait_ms: int) -> Order | None:
        """Pays one order; None if it was declined and will come again."""
        message = payments.receive(wait_ms)
        order: Order = message.value()
        try:
            pay(order)
        except Declined:
            payments.negative_acknowledge(message)
            return None
        payments.acknowledge(message)
        return order

    def remind(self, text: str, after: timedelta = REMINDER_AFTER) -> None:
        """Sends a reminder that is delivered later."""
        producer = self._client.create_producer(self.topic("reminders"))
        producer.send(text.encode(), deliver_after=after)
        producer.close()

    def reminders(self) -> pulsar.Consumer:
        """A consumer of reminders."""
        return self._client.subscribe(self.topic("reminders"), "mail", pulsar.ConsumerType.Shared)

    def set_state(self, customer: str, state: str) -> None:
        """Publishes the customer's state; the latest one counts."""
        producer = self._client.create_producer(self.topic("states"))
        producer.send(state.encode(), partition_key=customer)
        producer.close()

    def states(self) -> dict[str, str]:
        """Reads the latest state of every customer."""
        reader = self._client.create_reader(
            self.topic("states"), pulsar.MessageId.earliest, is_read_compacted=True
        )
        found = {message.partition_key(): message.data().decode() for message in _all(reader)}
        reader.close()
        return found


def _all(reader: pulsar.Reader) -> Iterator[pulsar.Message]:
    while reader.has_message_available():
        yield reader.read_next(10_000)
