"""Frames that are not completed: their memory, their end, and a real broker that serves others meanwhile."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from random import Random

import pytest

from broker.net.connection_limits import CONNECT_FRAME_BYTES_MAX
from broker.net.liveness import FRAME_INTERVALS_MAX
from broker.net.read_gate import PUBLISH_BUFFER
from protocol import receive_memory
from protocol.receive_memory import STALE_NS
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage
from tests.fuzz.peers import Target, produce_and_consume
from tests.support.raw_client import RawConnection
from tests.vectors.broker_process import BrokerProcess

FRAME = 5 << 20


def half_a_frame(sent: int = FRAME // 2) -> bytes:
    return struct.pack(">II", FRAME - 4, 10) + bytes(sent)


async def a_producer(port: Port) -> Client:
    client = await port.client()
    client.produce(topic=f"persistent://public/default/{id(client)}")
    assert await client.names() == ["PRODUCER_SUCCESS"]
    return client


async def test_idle_connections_have_no_receive_buffer() -> None:
    port = Port(Stage())
    clients = [await port.client() for _ in range(20)]
    for client in clients:
        client.produce(0, topic=f"persistent://public/default/{id(client)}")
        await client.hear()
    assert port.context.receive_memory.used_bytes == 0


async def test_lost_connection_returns_its_memory() -> None:
    port = Port(Stage())
    client = await a_producer(port)
    client.feed(half_a_frame())
    assert port.context.receive_memory.used_bytes >= FRAME // 2
    await client.lose()
    assert port.context.receive_memory.used_bytes == 0


async def test_half_frames_are_ended_when_their_memory_is_needed() -> None:
    stage = Stage()
    port = Port(stage, publish_buffer_bytes_max=1 << 20)
    port.context.receive_memory._now_ns = lambda: stage.now_ns
    silent = [await a_producer(port) for _ in range(3)]
    for client in silent:
        client.feed(half_a_frame())
    stage.now_ns += STALE_NS
    busy = [await a_producer(port) for _ in range(6)]
    for client in busy:
        client.feed(half_a_frame())
    await stage.fire()
    assert [client.transport.closing for client in silent] == [True] * 3
    assert port.context.receive_memory.used_bytes <= 4 * (FRAME + 10240)
    assert not busy[0].transport.closing


async def test_long_frame_before_connect_ends_the_connection() -> None:
    port = Port(Stage())
    client = await port.client(connect=False)
    client.feed(struct.pack(">I", CONNECT_FRAME_BYTES_MAX - 3))
    assert client.transport.closing
    assert port.context.receive_memory.used_bytes == 0


async def test_frames_before_connect_cost_no_producer_its_connection() -> None:
    stage = Stage()
    port = Port(stage, publish_buffer_bytes_max=1 << 20)
    producer = await a_producer(port)
    producer.feed(half_a_frame())
    strangers = [await port.client(connect=False) for _ in range(200)]
    for stranger in strangers:
        stranger.feed(struct.pack(">II", CONNECT_FRAME_BYTES_MAX - 4, 10) + bytes(150_000))
    producer.feed(bytes(FRAME // 4))
    other = await a_producer(port)
    other.feed(half_a_frame())
    await stage.fire()
    assert not producer.transport.closing
    assert not other.transport.closing
    assert sum(stranger.transport.closing for stranger in strangers) > 100


async def test_connections_without_a_producer_share_a_small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_memory, "IDLE_BYTES_MAX", 2 << 20)
    stage = Stage()
    port = Port(stage)
    memory = port.context.receive_memory
    memory._now_ns = lambda: stage.now_ns
    producer = await a_producer(port)
    producer.feed(half_a_frame())
    silent = [await port.client() for _ in range(3)]
    for client in silent:
        client.feed(half_a_frame(600_000))
    stage.now_ns += STALE_NS
    later = await port.client()
    later.feed(half_a_frame(900_000))
    await stage.fire()
    assert memory.idle_bytes <= 2 << 20
    assert silent[0].transport.closing
    assert not producer.transport.closing
    assert not later.transport.closing


async def fire_keep_alive(client: Client, intervals: int) -> None:
    """Lets intervals pass in which single bytes of the frame arrive."""
    for _ in range(intervals):
        client.feed(b"x")
        await client.port.stage.fire()


async def test_frame_that_arrives_byte_by_byte_is_ended() -> None:
    client = await a_producer(Port(Stage()))
    client.feed(half_a_frame(10))
    await fire_keep_alive(client, FRAME_INTERVALS_MAX)
    assert not client.transport.closing
    await fire_keep_alive(client, 1)
    assert client.transport.closing


async def test_frame_is_not_ended_for_time_in_which_the_broker_does_not_read() -> None:
    client = await a_producer(Port(Stage()))
    client.feed(half_a_frame(10))
    client.cnx.gate.stop(PUBLISH_BUFFER)
    await fire_keep_alive(client, 3 * FRAME_INTERVALS_MAX)
    assert not client.transport.closing


async def test_new_frame_has_all_its_time() -> None:
    client = await a_producer(Port(Stage()))
    for _ in range(3):
        client.feed(half_a_frame(10))
        await fire_keep_alive(client, FRAME_INTERVALS_MAX - 1)
        client.cnx.inbox.completions += 1  # As if the frame had been completed.
    assert not client.transport.closing


@pytest.mark.one_broker("fills the receive memory of one process")
@pytest.mark.parametrize("copy", ["true", "false"])
async def test_broker_ends_half_frames_above_the_limit_and_serves_others(tmp_path: Path, copy: str) -> None:
    """With the real event loop, which crashes when a stream is closed while it asks for memory."""
    settings = {"maxMessagePublishBufferSizeInMB": "1", "managedLedgerCacheCopyEntries": copy}
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        target = Target(broker.addresses.pulsar, Random(1), 1)
        peers = [await RawConnection.open(target.pulsar) for _ in range(20)]
        for peer in peers:
            await peer.connect()
            peer.send("PRODUCER", topic=target.topic(), producer_id=0, request_id=1)
            await peer.receive("PRODUCER_SUCCESS")
            peer.send_bytes(half_a_frame())
        await asyncio.gather(*(peer.drain() for peer in peers), return_exceptions=True)
        await produce_and_consume(target, target.topic())
        assert broker.resident_bytes() < 200 << 20
        for peer in peers:
            await peer.close()
    # After the stop, which writes the rest of the log.
    assert 10 <= len([line for line in broker.log_lines() if "its memory is needed" in line]) <= 20
    assert not [line for line in broker.log_lines() if "Traceback" in line]
