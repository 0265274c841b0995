"""The console's live stream of a whole broker: its events, its end, its limits, and readers that take nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pulsar
import pytest
from aiohttp import ClientResponse, ClientSession

from broker.compose.broker_service import BrokerService
from broker.console import hub, streaming
from broker.console.hub import NARROW_STREAMS_MAX, STREAMS_MAX, TooManyStreams
from broker.console.log_warnings import LogWarnings
from broker.console.samples import Reading
from tests.support.memory_broker import memory_broker

CONSOLE = "/admin/v2/magnetar/console"
EVENTS = f"{CONSOLE}/events"


async def events(answer: ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """Yields name and data of each event, until the stream ends."""
    name = ""
    async for line in answer.content:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            name = rest
        elif word == "data":
            yield name, json.loads(rest)


async def until(answer: ClientResponse, name: str, wanted: Callable[[Any], bool]) -> Any:
    """Returns the first event of that name that is as wanted."""
    async with asyncio.timeout(60):
        async for found, data in events(answer):
            if found == name and wanted(data):
                return data
    raise AssertionError(f"the stream ended without such an event {name}")


def publish_and_receive(url: str, count: int) -> pulsar.Client:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("watched", "s")
    producer = client.create_producer("watched")
    for _ in range(count):
        producer.send(b"x" * 100)
        consumer.acknowledge(consumer.receive(timeout_millis=60_000))
    return client


async def test_stream_shows_history_and_then_the_traffic(broker: BrokerService, admin: ClientSession) -> None:
    async with admin.get(EVENTS) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        name, history = await anext(events(answer))
        assert name == "history"
        assert all(len(row) == len(history["fields"]) for row in history["tens"])
        await until(answer, "overview", lambda data: data["topics"] == 0)
        client = await asyncio.to_thread(publish_and_receive, broker.addresses.service_url, 50)
        busy = await until(answer, "overview", lambda data: (data["messagesIn"] or 0) > 0)
        assert (busy["topics"], busy["producers"], busy["consumers"], busy["subscriptions"]) == (1, 1, 1, 1)
        assert busy["publishP50Ms"] <= busy["publishP99Ms"]
        assert set(history["fields"]) <= busy.keys()
        quiet = await until(answer, "overview", lambda data: data["messagesIn"] == 0)
        assert (quiet["backlog"], quiet["hitRatioTotal"], quiet["hitRatio"]) == (0, 1.0, None)
        await asyncio.to_thread(client.close)
    async with admin.get(EVENTS) as answer:
        _, later = await anext(events(answer))
        sent = later["fields"].index("messagesIn")
        assert any((row[sent] or 0) > 0 for row in later["seconds"])


async def test_stream_shows_warnings_from_before_and_after_its_begin(
    broker: BrokerService, admin: ClientSession
) -> None:
    log = logging.getLogger("magnetar")
    log.warning("before the stream")
    async with admin.get(EVENTS) as answer:
        await until(answer, "warning", lambda line: line["text"] == "before the stream")
        log.error("while it is open")
        line = await until(answer, "warning", lambda line: "while" in line["text"])
        assert (line["level"], line["logger"]) == ("ERROR", "magnetar")


async def test_stream_ends_when_the_broker_stops() -> None:
    async with AsyncExitStack() as running:
        broker = await running.enter_async_context(memory_broker())
        async with (
            ClientSession(base_url=broker.addresses.admin_url) as admin,
            admin.get(EVENTS) as answer,
            asyncio.timeout(60),
        ):
            await until(answer, "overview", lambda _: True)
            stopping = asyncio.create_task(running.aclose())
            async for _ in answer.content:
                pass
            await stopping


async def test_streams_are_bounded(broker: BrokerService, admin: ClientSession) -> None:
    open_ones = [await admin.get(EVENTS) for _ in range(STREAMS_MAX)]
    async with admin.get(EVENTS) as refused:
        assert refused.status == 503
        assert str(STREAMS_MAX) in (await refused.json())["reason"]
    # A page that leaves makes room for another one.
    open_ones.pop().close()
    async with asyncio.timeout(60):
        while (answer := await admin.get(EVENTS)).status != 200:
            answer.close()
            await asyncio.sleep(0.05)
    answer.close()
    for one in open_ones:
        one.close()


def test_roles_without_a_view_of_the_broker_lock_nobody_out() -> None:
    found = hub.Hub(NoReadings().read, LogWarnings())
    for _ in range(NARROW_STREAMS_MAX):
        found.open(dict, whole=False)
    with pytest.raises(TooManyStreams):
        found.open(dict, whole=False)
    found.open(None)


class NoReadings:
    """The readings of a hub that does not run."""

    async def read(self) -> Reading:
        raise AssertionError


class DefectReadings:
    """Readings that fail, as a defect in a look at one topic would let them."""

    def __init__(self, asked_max: int) -> None:
        self.left = asked_max
        self.done = asyncio.Event()

    async def read(self) -> Reading:
        self.left -= 1
        if not self.left:
            self.done.set()
        raise ZeroDivisionError("by the test")


async def test_sampling_outlives_a_defect_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hub, "SECOND_S", 0.001)
    readings = DefectReadings(3)
    found = hub.Hub(readings.read, LogWarnings())
    found.open(None)
    running = asyncio.create_task(found.run())
    async with asyncio.timeout(60):
        await asyncio.wait(
            [running, done := asyncio.create_task(readings.done.wait())], return_when="FIRST_COMPLETED"
        )
    assert not running.done()
    running.cancel()
    done.cancel()
    failures = [line for line in caplog.records if "cannot sample" in line.getMessage()]
    assert [line.exc_info is not None for line in failures] == [True]


async def test_reader_that_takes_nothing_is_dropped(
    broker: BrokerService, admin: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SLOW_S", 0.2)
    monkeypatch.setattr(hub, "SECOND_S", 0.01)
    host, port = broker.addresses.admin_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await reader.readline()
    log = logging.getLogger("magnetar")
    async with asyncio.timeout(60):
        while True:
            # Lines of the log fill all buffers between broker and reader.
            for _ in range(200):
                log.warning("x" * 1000)
            async with admin.get(f"{CONSOLE}/session") as answer:
                if (await answer.json())["pages"] == 0:
                    break
    writer.close()
