"""Producers, consumers and connections that have gone are freed without the garbage collector.

An old cycle would stay for days, and one that was there when objects were frozen for ever.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from protocol.pulsar_api_pb2 import BaseCommand
from tests.broker.managed_ledger.ledger_fakes import until
from tests.fakes.client import Port
from tests.fakes.stage import TOPIC, Stage
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import RawConnection

KINDS = ("Producer", "ProducerOnConnection", "Consumer", "ConsumerOnConnection")


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def counts() -> dict[str, int]:
    found = dict.fromkeys(KINDS, 0)
    for each in gc.get_objects():
        kind = type(each)
        if kind.__name__ in found and kind.__module__.startswith("broker."):
            found[kind.__name__] += 1
    return found


@pytest.mark.parametrize("end", ["closed by the client", "lost", "closed by the broker", "unsubscribed"])
async def test_producer_and_consumer_that_have_gone_are_freed(end: str) -> None:
    stage = Stage()
    before = counts()
    client = await Port(stage).client()
    client.produce(0)
    client.subscribe(0)
    await client.hear()
    client.flow(10)
    client.publish(0)
    await client.hear()
    assert counts() != before
    if end == "closed by the client":
        client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
        client.say(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=0)
    elif end == "unsubscribed":
        client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
        client.say(BaseCommand.UNSUBSCRIBE, "unsubscribe", consumer_id=0)
    elif end == "lost":
        await client.lose()
    else:
        await stage.run(stage.registry.unload(stage.registry.topics[TOPIC].name))
    await client.hear()
    await stage.fire()
    assert counts() == before


@pytest.mark.timeout(60)
async def test_closed_connection_with_a_producer_and_a_consumer_is_in_no_cycle() -> None:
    async with memory_broker() as broker:
        connection = await RawConnection.open(broker.addresses.service_url)
        await connection.connect()
        connection.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        await connection.receive("PRODUCER_SUCCESS")
        connection.send("SUBSCRIBE", topic=TOPIC, subscription="s", subType=1, consumer_id=1, request_id=2)
        await connection.receive("SUCCESS")
        (served,) = [weakref.ref(one) for one in broker.net.connections]
        await connection.close()
        # Its last tasks end within some turns.
        await until(lambda: not broker.net.connections and served() is None)
