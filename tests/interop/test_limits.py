"""Rates and limits that official clients feel: set over REST, they act on connected clients without a reconnect.

Rule of this file: a rate is measured by what came until a condition held, within bounds that a slow machine keeps: no
rate is exceeded, and everything comes in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pulsar
import pytest

from tests.interop.support import Admin, Json, nothing_comes, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

TOPIC = "persistent/public/default"
Connect = Callable[[str], pulsar.Client]


def test_publish_rate_slows_a_connected_producer_down_without_an_error(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    producer = client.create_producer("slow", batching_enabled=False)
    consumer = client.subscribe("slow", "s")
    publish(producer, numbered(5))
    admin.post(f"{TOPIC}/slow/publishRate", {"publishThrottlingRateInMsg": 20})
    started = time.monotonic()
    publish(producer, numbered(60, 5))
    # 20 at once, 40 at 20 a second. A faster end would break the rate; a slower one is the machine's.
    took_s = time.monotonic() - started
    assert took_s >= 1.9
    assert receive(consumer, 65) == numbered(65)
    limited = admin.stats("slow")["publishRateLimitedTimes"]
    assert isinstance(limited, int)
    # Each of 40 messages waits for its turn; 20 more find one free after each second that the machine was late.
    assert max(1, 30 - 20 * (took_s - 1.9)) <= limited <= 41
    assert (
        admin.metric("pulsar_publish_rate_limit_times", topic=f"{TOPIC.replace('/', '://', 1)}/slow")
        == limited
    )
    admin.delete(f"{TOPIC}/slow/publishRate")
    publish(producer, numbered(500))
    assert admin.stats("slow")["publishRateLimitedTimes"] == limited


def test_producer_that_waits_for_its_rate_goes_on_when_the_rate_is_removed(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    producer = connected(broker.addresses.pulsar).create_producer("stuck", batching_enabled=False)
    admin.post(
        f"{TOPIC}/stuck/publishRate", {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 1000}
    )
    results: list[pulsar.Result] = []
    for body in numbered(300):
        producer.send_async(body, lambda result, _: results.append(result))
    wait_until(lambda: admin.stats("stuck")["publishRateLimitedTimes"], "a limited producer")
    admin.delete(f"{TOPIC}/stuck/publishRate")
    # 300 messages at one a second would take minutes.
    wait_until(lambda: len(results) == 300, "all receipts")
    assert set(results) == {pulsar.Result.Ok}


@pytest.mark.parametrize(
    "kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]
)
@pytest.mark.parametrize("word", ["dispatchRate", "subscriptionDispatchRate"])
def test_dispatch_rate_holds_for_a_connected_consumer_until_it_is_removed(
    broker: BrokerProcess, admin: Admin, connected: Connect, word: str, kind: pulsar.ConsumerType
) -> None:
    topic = f"{word}-{kind}".replace(".", "-")
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s", kind)
    admin.post(f"{TOPIC}/{topic}/{word}", {"dispatchThrottlingRateInMsg": 20, "ratePeriodInSecond": 1})
    started = time.monotonic()
    publish(client.create_producer(topic, batching_enabled=False, block_if_queue_full=True), numbered(2000))
    assert receive(consumer, 60) == numbered(60)
    assert time.monotonic() - started >= 1.9
    limit = "Topic" if word == "dispatchRate" else "Subscription"
    assert admin.subscription(topic, "s")[f"dispatchThrottledMsgEventsBy{limit}Limit"]
    admin.delete(f"{TOPIC}/{topic}/{word}")
    started = time.monotonic()
    assert receive(consumer, 1940) == numbered(1940, 60)
    # At the former rate it would take 97 seconds.
    assert time.monotonic() - started < 60


def test_rates_of_the_broker_change_while_clients_work(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe("changed", "s")
    producer = client.create_producer("changed", batching_enabled=False)
    admin.configure("dispatchThrottlingRateInMsg", "1")
    publish(producer, numbered(200))
    assert receive(consumer, 2) == numbered(2)
    admin.unconfigure("dispatchThrottlingRateInMsg")
    assert receive(consumer, 198) == numbered(198, 2)
    admin.configure("brokerPublisherThrottlingMaxMessageRate", "50")
    started = time.monotonic()
    publish(producer, numbered(150))
    assert time.monotonic() - started >= 1.9
    admin.unconfigure("brokerPublisherThrottlingMaxMessageRate")


def test_subscribe_rate_refuses_and_then_lets_in(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    client.create_producer("often")
    admin.post(
        f"{TOPIC}/often/subscribeRate", {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 600}
    )
    # Each client numbers its consumers from 0, so these two are the same consumer to the broker.
    first = connected(broker.addresses.pulsar).subscribe("often", "s", consumer_name="c")
    first.close()
    with pytest.raises(pulsar.PulsarException):
        connected(broker.addresses.pulsar).subscribe("often", "s", consumer_name="c")
    admin.delete(f"{TOPIC}/often/subscribeRate")
    connected(broker.addresses.pulsar).subscribe("often", "s", consumer_name="c")


def test_full_broker_holds_the_large_subscription_and_serves_the_small_one(
    broker_with: Callable[[dict[str, str]], BrokerProcess], connected: Connect
) -> None:
    settings = {
        "maxUnackedMessagesPerBroker": "50",
        "maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.2",
    }
    broker = broker_with(settings)
    client, admin = connected(broker.addresses.pulsar), Admin.of(broker)
    large = client.subscribe("unacked-broker", "large", pulsar.ConsumerType.Shared, receiver_queue_size=100)
    small = client.subscribe("unacked-broker", "small", pulsar.ConsumerType.Shared, receiver_queue_size=2)
    publish(client.create_producer("unacked-broker", batching_enabled=False), numbered(200))
    taken = [large.receive(60_000) for _ in range(50)]

    def is_drained() -> bool:
        taken.extend(_all_that_come(large))
        return admin.subscription("unacked-broker", "large")["unackedMessages"] == len(taken)

    wait_until(is_drained, "all that was sent to the large one has come")
    assert len(taken) < 200
    assert nothing_comes(large)
    assert receive(small, 20) == numbered(20)
    for message in taken:
        large.acknowledge(message)
    assert len(receive(large, 200 - len(taken))) == 200 - len(taken)


def _all_that_come(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """Returns messages until none comes for a while."""
    messages = []
    while True:
        try:
            messages.append(consumer.receive(300))
        except pulsar.Timeout:
            return messages


def test_unused_topic_is_deleted_by_its_policy_and_one_with_a_subscription_stays(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    policy: Json = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    }
    for topic in ("unused", "used"):
        publish(client.create_producer(topic), numbered(1))
        admin.post(f"{TOPIC}/{topic}/inactiveTopicPolicies", policy)
    consumer = client.subscribe("used", "s", initial_position=pulsar.InitialPosition.Earliest)
    consumer.close()
    client.close()
    admin.configure("brokerDeleteInactiveTopicsFrequencySeconds", "1")
    wait_until(lambda: admin.get(TOPIC) and f"{_FULL}/unused" not in _topics(admin), "a deleted topic")
    assert f"{_FULL}/used" in _topics(admin)
    again = connected(broker.addresses.pulsar).subscribe("used", "s")
    assert receive(again, 1) == numbered(1)


_FULL = "persistent://public/default"


def _topics(admin: Admin) -> list[Json]:
    found = admin.get(TOPIC)
    assert isinstance(found, list)
    return found
