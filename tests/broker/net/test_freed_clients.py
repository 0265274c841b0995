"""Producers and consumers that have gone are freed without the garbage collector: an old pair would stay for days."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Port
from tests.fakes.stage import TOPIC, Stage

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
