"""Tests of the shop, with the fixtures of Magnetar's pytest plugin: hours pass, brokers fail, nothing sleeps.

Run them with `pytest examples/orders`. Against a real Pulsar (`--pulsar-url`, `--pulsar-admin-url`) those that need the
clock or faults are skipped. There `--hour-seconds 2` makes an hour two seconds long and sleeps instead of the clock.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from orders import PAYMENT_TRIES, Declined, Order, Shop
from pulsar.schema import Integer, JsonSchema, Record, String

import magnetar

WAIT_MS = 60_000
EXPIRES_WITHIN_S = 120
SECRET = bytes(range(32))
"""Signs the tokens of one test."""
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture
def client(pulsar_url: str, pulsar_namespace: str) -> Iterator[pulsar.Client]:
    """Asks for the namespace, so that it is closed before the report about the namespace is made."""
    client = pulsar.Client(pulsar_url, logger=QUIET)
    yield client
    with contextlib.suppress(pulsar.AlreadyClosed):
        client.close()


@pytest.fixture
def shop(client: pulsar.Client, pulsar_namespace: str) -> Shop:
    return Shop(client, pulsar_namespace)


def order(number: int, customer: str = "ann", amount: float = 10.0) -> Order:
    return Order(id=str(number), customer=customer, amount=amount)


def paid(shop: Shop, payments: pulsar.Consumer, count: int) -> list[str]:
    return [shop.pay_next(payments, lambda _: None, WAIT_MS).id for _ in range(count)]  # type: ignore[union-attr]


def nothing_comes(consumer: pulsar.Consumer) -> bool:
    with contextlib.suppress(pulsar.Timeout):
        consumer.receive(200)
        return False
    return True


# Schemas


def test_order_arrives_as_it_was_placed(shop: Shop) -> None:
    payments = shop.payments()
    shop.place(shop.orders(), order(1, "bob", 12.5))
    got = shop.pay_next(payments, lambda _: None, WAIT_MS)
    assert got is not None
    assert (got.id, got.customer, got.amount, got.state) == ("1", "bob", 12.5, "placed")


def test_producer_of_another_shape_is_refused(shop: Shop, client: pulsar.Client) -> None:
    class Bill(Record):  # type: ignore[misc]
        id = Integer(required=True)

    shop.orders()
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(shop.topic("orders"), schema=JsonSchema(Bill))


def test_field_with_a_default_may_be_added(shop: Shop, client: pulsar.Client) -> None:
    class Newer(Record):  # type: ignore[misc]
        id = String(required=True)
        customer = String(required=True)
        amount = pulsar.schema.Float(required=True)
        state = String(required=True, default="placed")
        coupon = String(required_default=True)

    payments = shop.payments()
    newer = client.create_producer(shop.topic("orders"), schema=JsonSchema(Newer))
    newer.send(Newer(id="7", customer="ann", amount=1.0, coupon="x"))
    assert paid(shop, payments, 1) == ["7"]


# Retries and dead letters


def test_declined_payment_is_tried_again(shop: Shop) -> None:
    payments, tries = shop.payments(), 0

    def pay(_: Order) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Declined

    shop.place(shop.orders(), order(1))
    assert shop.pay_next(payments, pay, WAIT_MS) is None
    assert shop.pay_next(payments, pay, WAIT_MS) is not None
    assert tries == 2


def test_order_that_fails_each_time_becomes_a_dead_letter(shop: Shop, client: pulsar.Client) -> None:
    payments, unpaid = shop.payments(), client.subscribe(shop.topic("unpaid"), "watch")

    def decline(_: Order) -> None:
        raise Declined

    shop.place(shop.orders(), order(13))
    for _ in range(PAYMENT_TRIES):
        assert shop.pay_next(payments, decline, WAIT_MS) is None
    assert b'"id": "13"' in unpaid.receive(WAIT_MS).data()


def test_dead_letter_does_not_hold_up_other_orders(shop: Shop) -> None:
    payments, orders = shop.payments(), shop.orders()

    def pay(order: Order) -> None:
        if order.id == "13":
            raise Declined

    for number in (12, 13, 14):
        shop.place(orders, order(number))
    got = [shop.pay_next(payments, pay, WAIT_MS) for _ in range(2 + PAYMENT_TRIES)]
    assert sorted(order.id for order in got if order) == ["12", "14"]


# Time


def test_reminder_comes_after_an_hour(shop: Shop, clock: Any, hour: timedelta) -> None:
    reminders = shop.reminders()
    shop.remind("order 1 is not paid", hour)
    clock.advance(minutes=50)
    assert nothing_comes(reminders)
    clock.advance(minutes=10)
    assert reminders.receive(WAIT_MS).data() == b"order 1 is not paid"


def test_reminders_come_in_the_order_of_their_time(shop: Shop, clock: Any, hour: timedelta) -> None:
    reminders = shop.reminders()
    for hours in (5, 1, 3):
        shop.remind(str(hours), hours * hour)
    got = []
    for _ in range(3):
        clock.advance(hours=2)
        got.append(reminders.receive(WAIT_MS).data())
    assert got == [b"1", b"3", b"5"]


def test_reminder_of_tomorrow_survives_a_restart(tmp_path: Path) -> None:
    with magnetar.Broker(tmp_path) as broker:
        first = pulsar.Client(broker.pulsar_url, logger=QUIET)
        shop = Shop(first, "public/default")
        shop.reminders().close()
        shop.remind("tomorrow", timedelta(days=1))
        first.close()
        broker.restart()
        second = pulsar.Client(broker.pulsar_url, logger=QUIET)
        reminders = Shop(second, "public/default").reminders()
        broker.clock.advance(days=1, minutes=1)
        assert reminders.receive(WAIT_MS).data() == b"tomorrow"
        second.close()


def test_orders_expire_after_a_week(
    shop: Shop, pulsar_broker: magnetar.Broker, pulsar_namespace: str, clock: Any, hour: timedelta
) -> None:
    week = round((7 * 24 * hour).total_seconds())
    pulsar_broker.ask("POST", f"/admin/v2/namespaces/{pulsar_namespace}/messageTTL", week)
    shop.payments().close()
    shop.place(shop.orders(), order(1))
    clock.advance(days=6)
    assert backlog(pulsar_broker, shop) == 1
    clock.advance(days=1, minutes=10)
    # Magnetar has expired the order now. A real Pulsar does when it looks the next time, each minute at best.
    deadline = time.monotonic() + EXPIRES_WITHIN_S
    while backlog(pulsar_broker, shop) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert backlog(pulsar_broker, shop) == 0


def backlog(broker: magnetar.Broker, shop: Shop) -> int:
    path = shop.topic("orders").replace("://", "/")
    stats: Any = broker.ask("GET", f"/admin/v2/{path}/stats")
    return int(stats["subscriptions"]["payments"]["msgBacklog"])


def test_topic_of_a_closed_shop_is_removed(pulsar_namespace: str) -> None:
    settings = {"brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 3600}
    with magnetar.Broker(settings=settings) as broker:
        client = pulsar.Client(broker.pulsar_url, logger=QUIET)
        client.create_producer("persistent://public/default/orders").close()
        client.close()
        broker.clock.advance(hours=2)
        assert broker.ask("GET", "/admin/v2/persistent/public/default") == []


def signed(role: str, life: timedelta) -> str:
    claims = {"sub": role, "exp": int((datetime.now(UTC) + life).timestamp())}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET))


def test_till_gets_a_new_token_when_its_own_expires() -> None:
    settings = {
        "authenticationEnabled": True,
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    }
    given = []

    def fresh() -> str:
        given.append(signed("till", timedelta(days=1) if given else timedelta(hours=1)))
        return given[-1]

    with magnetar.Broker(settings=settings, token=signed("admin", timedelta(days=9))) as broker:
        client = pulsar.Client(broker.pulsar_url, pulsar.AuthenticationToken(fresh), logger=QUIET)
        shop = Shop(client, "public/default")
        payments, orders = shop.payments(), shop.orders()
        used = len(given)
        broker.clock.advance(hours=2)
        # The broker asks for a new token now; the answer takes a moment.
        deadline = time.monotonic() + WAIT_MS / 1000
        while len(given) == used and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(given) > used
        shop.place(orders, order(1))
        assert paid(shop, payments, 1) == ["1"]
        client.close()


# Order and duplicates


def test_orders_of_one_customer_stay_in_order(shop: Shop) -> None:
    payments = [shop.payments(pulsar.ConsumerType.KeyShared) for _ in range(2)]
    orders = shop.orders()
    for number in range(20):
        shop.place(orders, order(number, f"customer {number % 4}"))
    got: dict[str, list[int]] = {}
    left = 20
    while left:
        for consumer in payments:
            with contextlib.suppress(pulsar.Timeout):
                while found := shop.pay_next(consumer, lambda _: None, 50):
                    got.setdefault(found.customer, []).append(int(found.id))
                    left -= 1
    assert all(numbers == sorted(numbers) for numbers in got.values())
    assert sum(map(len, got.values())) == 20


def test_order_that_is_sent_twice_is_paid_once(
    shop: Shop, pulsar_broker: magnetar.Broker, pulsar_namespace: str
) -> None:
    pulsar_broker.ask("POST", f"/admin/v2/namespaces/{pulsar_namespace}/deduplication", True)
    payments, orders = shop.payments(), shop.orders("till-1")
    for number, sequence in ((1, 1), (1, 1), (2, 2)):
        orders.send(order(number), sequence_id=sequence)
    assert paid(shop, payments, 2) == ["1", "2"]


def test_second_till_takes_over_from_the_first(shop: Shop) -> None:
    tills = [shop.payments(pulsar.ConsumerType.Failover) for _ in range(2)]
    orders = shop.orders()
    shop.place(orders, order(1))
    chosen = None
    while chosen is None:
        for till in tills:
            with contextlib.suppress(pulsar.Timeout):
                shop.pay_next(till, lambda _: None, 50)
                chosen = till
    tills.remove(chosen)
    chosen.close()
    shop.place(orders, order(2))
    assert paid(shop, tills[0], 1) == ["2"]


def test_table_keeps_the_latest_state(shop: Shop, pulsar_broker: magnetar.Broker) -> None:
    for customer, state in (("ann", "placed"), ("bob", "placed"), ("ann", "paid")):
        shop.set_state(customer, state)
    pulsar_broker.ask("PUT", f"/admin/v2/{shop.topic('states').replace('://', '/')}/compaction")
    assert shop.states() == {"ann": "paid", "bob": "placed"}


# Failures


def test_till_starts_while_the_broker_is_not_ready(shop: Shop, pulsar_broker: magnetar.Broker) -> None:
    fault = pulsar_broker.faults.refuse("LOOKUP", "ServiceNotReady", times=2)
    shop.place(shop.orders(), order(1))
    fault.assert_fired(2)


def test_order_survives_a_lost_receipt_and_is_paid_once(
    client: pulsar.Client, shop: Shop, pulsar_broker: magnetar.Broker, pulsar_namespace: str
) -> None:
    pulsar_broker.ask("POST", f"/admin/v2/namespaces/{pulsar_namespace}/deduplication", True)
    payments, orders = shop.payments(), shop.orders("till-1")
    fault = pulsar_broker.faults.drop("SEND_RECEIPT")
    shop.place(orders, order(1))
    shop.place(orders, order(2))
    fault.assert_fired(1)
    assert paid(shop, payments, 2) == ["1", "2"]


def test_payment_survives_a_connection_that_drops_at_an_acknowledgement(
    shop: Shop, pulsar_broker: magnetar.Broker
) -> None:
    payments, orders = shop.payments(), shop.orders()
    fault = pulsar_broker.faults.drop("ACK")
    seen = set()
    for number in range(3):
        shop.place(orders, order(number))
    while seen != {"0", "1", "2"} or not fault.fired:
        seen.update(paid(shop, payments, 1))
    fault.assert_fired(1)


def test_order_survives_a_full_disk(shop: Shop, pulsar_broker: magnetar.Broker) -> None:
    payments, orders = shop.payments(), shop.orders()
    fault = pulsar_broker.faults.refuse("STORAGE_ADD", "FullDisk", times=2)
    shop.place(orders, order(1))
    fault.assert_fired()
    assert paid(shop, payments, 1) == ["1"]


def test_nothing_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    with magnetar.Broker(tmp_path) as broker:
        client = pulsar.Client(broker.pulsar_url, logger=QUIET)
        shop = Shop(client, "public/default")
        payments, orders = shop.payments(), shop.orders()
        shop.place(orders, order(1))
        broker.kill()
        broker.start()
        shop.place(orders, order(2))
        assert sorted(set(paid(shop, payments, 2))) == ["1", "2"]
        client.close()
