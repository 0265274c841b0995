"""Non-persistent topics tell the consumers of a Failover subscription which of them is the active one."""

from __future__ import annotations

from tests.fakes.stage import FAILOVER, SHARED, Stage

NAME = "non-persistent://public/default/n"


async def test_failover_tells_each_consumer_whether_it_is_active() -> None:
    """As Pulsar does from 5.0 on (#26482)."""
    stage = Stage()
    topic = await stage.open(NAME)
    subscription, first, of_first = await stage.consume(topic, FAILOVER, name="b", permits=5)
    _, _, of_second = await stage.consume(topic, FAILOVER, name="c")
    assert (of_first.events, of_second.events) == (["active"], ["passive"])
    _, _, of_third = await stage.consume(topic, FAILOVER, name="a")
    assert (of_first.events, of_third.events) == (["active", "passive"], ["active"])
    subscription.remove_consumer(first)
    assert of_second.events == ["passive"], "the active one is still there"
    subscription.remove_consumer(subscription.consumers[0])
    assert of_second.events == ["passive", "active"]


async def test_shared_subscription_has_no_active_consumer() -> None:
    stage = Stage()
    topic = await stage.open(NAME)
    _, _, port = await stage.consume(topic, SHARED)
    assert port.events == []
