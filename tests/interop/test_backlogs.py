"""Backlog quotas as official clients feel them: producers are stopped and come back, or the oldest messages go."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pulsar
import pytest

from tests.interop.support import Admin, Json, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"backlogQuotaCheckIntervalInSeconds": "1", "preciseTimeBasedBacklogQuotaCheck": "true"}
TOPIC = "persistent/public/default"
BODY = b"x" * 1000
Connect = Callable[[str], pulsar.Client]


def set_quota(admin: Admin, topic: str, kind: str, quota: dict[str, Json]) -> None:
    admin.post(f"{TOPIC}/{topic}/backlogQuota?backlogQuotaType={kind}", quota)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", pulsar.ProducerBlockedQuotaExceededError),
        ("producer_exception", pulsar.ProducerBlockedQuotaExceededException),
    ],
)
def test_producers_are_stopped_at_the_quota_and_come_back_after_a_drain(
    broker: BrokerProcess, admin: Admin, connected: Connect, policy: str, error: type[Exception]
) -> None:
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe(policy, "s")
    producer = client.create_producer(policy, batching_enabled=False, send_timeout_millis=60_000)
    publish(producer, [BODY] * 100)
    # Only now: a check between two messages would stop the producer before all of them are confirmed.
    set_quota(admin, policy, "destination_storage", {"limitSize": 50_000, "policy": policy})
    wait_until(lambda: not admin.stats(policy)["publishers"], "the producer to be disconnected")
    with pytest.raises(error):
        client.create_producer(policy)
    held = threading.Thread(target=producer.send, args=(b"held",))
    if policy == "producer_request_hold":
        held.start()
    assert receive(consumer, 100) == [BODY] * 100
    if policy == "producer_request_hold":
        # The producer that was stopped comes back by itself below the quota, perhaps before the last acknowledgement.
        assert receive(consumer, 1) == [b"held"]
        held.join()
    wait_until(lambda: admin.subscription(policy, "s")["msgBacklog"] == 0, "the acknowledgements")
    publish(client.create_producer(policy, batching_enabled=False), numbered(3))
    assert receive(consumer, 3) == numbered(3)


def test_oldest_messages_go_where_the_quota_evicts(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    client.subscribe("evicted", "slow").close()
    quota: dict[str, Json] = {"limitSize": 50_000, "policy": "consumer_backlog_eviction"}
    bodies = [b"%04d" % number + BODY for number in range(100)]
    publish(client.create_producer("evicted", batching_enabled=False), bodies)
    # Only now: a check between two messages would evict some, and the messages after it would stay.
    set_quota(admin, "evicted", "destination_storage", quota)
    wait_until(lambda: admin.subscription("evicted", "slow")["msgBacklog"] != 100, "an eviction")
    left = admin.subscription("evicted", "slow")["msgBacklog"]
    assert isinstance(left, int)
    # 90 % of the limit, and a message has some 60 bytes of metadata.
    assert 40 <= left <= 45
    assert receive(client.subscribe("evicted", "slow"), left) == bodies[-left:]


def test_quota_by_age_stops_producers(broker: BrokerProcess, admin: Admin, connected: Connect) -> None:
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe("aged", "s")
    producer = client.create_producer("aged", batching_enabled=False)
    publish(producer, numbered(1))
    set_quota(admin, "aged", "message_age", {"limitTime": 1, "policy": "producer_exception"})
    wait_until(lambda: not admin.stats("aged")["publishers"], "the producer to be disconnected")
    age = admin.stats("aged")["oldestBacklogMessageAgeSeconds"]
    assert isinstance(age, int)
    assert age >= 1
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer("aged")
    assert receive(consumer, 1) == numbered(1)
    wait_until(lambda: admin.subscription("aged", "s")["msgBacklog"] == 0, "the acknowledgement")
    client.create_producer("aged").close()
