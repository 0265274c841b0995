"""A client that seeks back while an expiry of its subscription runs gets the messages that it sought.

The broker runs in this process, so that the test can hold the expiry at its search; everything else is as in a broker of
its own.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request

import pulsar
import pytest

from broker.service.subscriptions.topic_positions import TopicPositions
from foundation.model.position import Position
from tests.interop.support import connect
from tests.support.memory_broker import memory_broker

TOPIC = "persistent://public/default/sought"
MESSAGES = 10


def expire(admin_url: str) -> tuple[int, str]:
    """Asks for the expiry of everything; returns the status and the answer."""
    path = "/admin/v2/persistent/public/default/sought/subscription/s/expireMessages/-10"
    request = urllib.request.Request(admin_url + path, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def play(url: str, admin_url: str, searching: threading.Event, go_on: threading.Event) -> list[bytes]:
    """Seeks to the first message while an expiry searches; returns what comes after both were answered."""
    client = connect(url)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    # Most are acknowledged already: they are the ones that the seek brings back.
    for _ in range(MESSAGES - 1):
        consumer.acknowledge(consumer.receive(60_000))
    answers: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: answers.append(expire(admin_url)))
    asking.start()
    assert searching.wait(60)
    consumer.seek(pulsar.MessageId.earliest)
    go_on.set()
    asking.join()
    assert answers[0][0] == 409
    assert "A seek moved subscription s" in answers[0][1]
    got = [consumer.receive(60_000).data() for _ in range(MESSAGES)]
    client.close()
    return got


def test_seek_during_an_expiry_by_hand_brings_all_messages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    searching, go_on = threading.Event(), threading.Event()
    real = TopicPositions.newest_before

    async def held(positions: TopicPositions, timestamp_ms: int) -> Position | None:
        found = await real(positions, timestamp_ms)
        searching.set()
        await asyncio.to_thread(go_on.wait, 60)
        return found

    monkeypatch.setattr(TopicPositions, "newest_before", held)

    async def run() -> list[bytes]:
        async with memory_broker() as broker:
            addresses = broker.addresses
            return await asyncio.to_thread(play, addresses.service_url, addresses.admin_url, searching, go_on)

    assert asyncio.run(run()) == [b"%d" % number for number in range(MESSAGES)]
