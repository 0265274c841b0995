"""Attacks on a broker: one coroutine per kind of bad peer, each returns the outcomes of its connections.

Law: every attack is bounded in frames, bytes and connections, takes its randomness from the target, and uses names of its
own (`fuzz…`). `campaign` judges the state of the broker afterwards; answers that the protocol prescribes are asserted by the
attack itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.fuzz import corpus
from tests.fuzz.peers import (
    ANSWERED,
    CLOSED,
    SIDE_BY_SIDE,
    WAITING,
    Outcomes,
    Target,
    bare_connection,
    connected,
    consume_what_follows,
    each,
    open_producer,
    produce_and_consume,
    producing,
    send_for,
    settled,
)
from tests.support.raw_client import (
    RawConnection,
    build_command,
    payload_frame,
    simple_frame,
)

FLOODED_HANDSHAKE_S_MAX: Final = 60.0
"""A new connection and its CONNECTED while another peer floods the broker, on a busy machine."""


async def noise_before_connect(target: Target) -> Outcomes:
    return await each(target, [corpus.noise(target.rng) for _ in range(60 * target.scale)], handshake=False)


async def noise_after_connect(target: Target) -> Outcomes:
    return await each(target, [corpus.noise(target.rng) for _ in range(60 * target.scale)])


async def truncated(target: Target) -> Outcomes:
    cut = []
    for _ in range(60 * target.scale):
        frame = corpus.any_frame(target.rng)
        cut.append(frame[: target.rng.randrange(1, len(frame))])
    return await each(target, cut)


async def mutated(target: Target) -> Outcomes:
    rng = target.rng
    return await each(target, [corpus.mutated(corpus.any_frame(rng), rng) for _ in range(150 * target.scale)])


async def lying(target: Target) -> Outcomes:
    outcomes = await each(target, [frame for _, frame in corpus.lying_frames()])
    limit = corpus.FRAME_BYTES_MAX
    headers = [(limit - 3).to_bytes(4, "big"), (2**31).to_bytes(4, "big")]
    for header in headers:
        connection = await connected(target)
        connection.send_bytes(header)
        # TimeoutError from a broker that waits for the rest of an oversized frame.
        await connection.until_closed()
        await connection.close()
    return outcomes + Counter({CLOSED: len(headers)})


async def claimed(target: Target) -> Outcomes:
    """Many connections announce the longest frame and send none of it; this must cost hardly any memory."""
    header = (corpus.FRAME_BYTES_MAX - 4).to_bytes(4, "big") + b"\x00\x00\x00\x08"
    return await each(target, [header] * (60 * target.scale), side_by_side=60)


async def lying_messages(target: Target) -> Outcomes:
    """SENDs without readable metadata: the connection may close, and consumers must still get what follows."""
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(name: str, frame: bytes, sub_type: str) -> str:
        async with places:
            connection, topic = await producing(target)
            try:
                connection.send_bytes(frame)
                outcome = await settled(connection)
                await consume_what_follows(target, topic, sub_type)
            except (AssertionError, ConnectionError, TimeoutError) as problem:
                raise AssertionError(f"{name}, {sub_type}: {type(problem).__name__} {problem}") from problem
            finally:
                await connection.close()
            return outcome

    types = ("Exclusive", "Shared", "Key_Shared")
    frames = list(corpus.lying_messages(producer_id=1))
    return Counter(await asyncio.gather(*(one(*frame, sub_type) for frame in frames for sub_type in types)))


async def bad_checksum(target: Target) -> Outcomes:
    """A wrong checksum gets SEND_ERROR ChecksumError and closes the producer; opened again, its next SEND is stored."""
    connection, topic = await producing(target)
    try:
        count = 20 * target.scale
        for sequence_id in range(0, 2 * count, 2):
            for offset, checksum, answer in ((0, "bad", "SEND_ERROR"), (1, "ok", "SEND_RECEIPT")):
                command = build_command("SEND", {"producer_id": 1, "sequence_id": sequence_id + offset})
                connection.send_bytes(corpus.message_frame(command, target.rng, checksum=checksum))
                frame = await connection.receive(answer)
                if checksum == "bad":
                    assert frame.command.send_error.error == 9
                    await connection.receive("CLOSE_PRODUCER")
                    await open_producer(connection, topic)
        return Counter({ANSWERED: 2 * count})
    finally:
        await connection.close()


async def out_of_order(target: Target) -> Outcomes:
    """Commands in any order with ids that were never opened, on each connection until it closes."""
    conversations = []
    for _ in range(20 * target.scale):
        commands = [corpus.any_command(target.rng, without=("CONNECT",)) for _ in range(25)]
        conversations.append(
            b"".join(
                corpus.message_frame(one, target.rng) if one.type == BaseCommand.SEND else simple_frame(one)
                for one in commands
            )
        )
    return await each(target, conversations)


async def never_opened(target: Target) -> Outcomes:
    """Sends each command that names a producer or consumer for one that was never opened; checks the answers."""
    expected = {
        "FLOW": None,
        "REDELIVER_UNACKNOWLEDGED_MESSAGES": None,
        "CLOSE_PRODUCER": "SUCCESS",
        "CLOSE_CONSUMER": "SUCCESS",
        "UNSUBSCRIBE": "ERROR",
        "SEEK": "ERROR",
    }
    connection = await connected(target)
    try:
        for name, answer in expected.items():
            owner = "producer_id" if name == "CLOSE_PRODUCER" else "consumer_id"
            fields: corpus.Fields = {owner: 4711}
            if name == "FLOW":
                fields["messagePermits"] = 5
            elif answer is not None:
                fields["request_id"] = 5
            connection.send(name, **fields)
            if answer is None:
                connection.send("PING")
                await connection.receive("PONG")
            else:
                await connection.receive(answer)
        command = build_command("SEND", {"producer_id": 4711, "sequence_id": 0})
        connection.send_bytes(corpus.message_frame(command, target.rng))
        assert await connection.until_closed() == []
        return Counter({ANSWERED: len(expected), CLOSED: 1})
    finally:
        await connection.close()


async def version_5_wrong_order(target: Target) -> Outcomes:
    """Ends of sessions and watches that were never begun, before and after requests: each is accepted, none is answered."""
    ends: dict[str, corpus.Fields] = {
        "SCALABLE_TOPIC_CLOSE": {"session_id": 4711},
        "WATCH_SCALABLE_TOPICS_CLOSE": {"watch_id": 4711},
        "WATCH_TC_ASSIGNMENTS_CLOSE": {"watch_id": 4711},
    }
    requests: dict[str, tuple[corpus.Fields, str]] = {
        "SCALABLE_TOPIC_UNSUBSCRIBE": ({"request_id": 5, "consumer_id": 4711}, "SUCCESS"),
        "SCALABLE_TOPIC_LOOKUP": ({"session_id": 4711, "topic": target.topic()}, "SCALABLE_TOPIC_UPDATE"),
        "WATCH_SCALABLE_TOPICS": (
            {"watch_id": 4711, "namespace": "public/default"},
            "WATCH_SCALABLE_TOPICS_UPDATE",
        ),
        "WATCH_TC_ASSIGNMENTS": ({"watch_id": 4711}, "WATCH_TC_ASSIGNMENTS_UPDATE"),
    }
    connection = await connected(target)
    try:
        for name, (fields, answer) in requests.items():
            for end, of_end in ends.items():
                connection.send(end, **of_end)
            connection.send(name, **fields)
            await connection.receive(answer)
        connection.send("PING")
        await connection.receive("PONG")
        return Counter({ANSWERED: len(requests), WAITING: len(ends) * len(requests)})
    finally:
        await connection.close()


async def version_5_flood(target: Target) -> Outcomes:
    """Registers consumers without end, in groups of their own, and opens sessions: a member elsewhere keeps its share."""
    topic, count = target.topic(), 2000 * target.scale
    member, flooding = await connected(target), await connected(target)
    join: corpus.Fields = {"topic": topic, "subscription": "kept", "consumer_type": "STREAM"}
    try:
        member.send("SCALABLE_TOPIC_SUBSCRIBE", **join, consumer_name="m", consumer_id=1, request_id=1)
        await member.receive("SCALABLE_TOPIC_SUBSCRIBE_RESPONSE")
        refused = 0
        for first in range(0, count, 500):
            numbers = range(first, first + 500)
            for number in numbers:
                group: corpus.Fields = {**join, "subscription": f"g{number}-" + "g" * 1000}
                flooding.send(
                    "SCALABLE_TOPIC_SUBSCRIBE",
                    **group,
                    consumer_name=f"c{number}",
                    consumer_id=number,
                    request_id=number,
                )
                flooding.send("SCALABLE_TOPIC_LOOKUP", session_id=number, topic=topic)
            await flooding.drain()
            for _ in range(2 * len(numbers)):
                frame = await flooding.receive(
                    "SCALABLE_TOPIC_SUBSCRIBE_RESPONSE", "SCALABLE_TOPIC_UPDATE", timeout_s=60
                )
                refused += frame.command.scalableTopicSubscribeResponse.HasField("error")
        assert refused > 0, "one connection may register consumers without a limit"
        # Nothing has been told to the member meanwhile, and its connection is open.
        member.send("PING")
        await member.receive("PONG")
        assert await member.quiet(0.2) is None
        return Counter({ANSWERED: 2 * count})
    finally:
        await flooding.close()
        await member.close()


async def small_frames(target: Target) -> Outcomes:
    """A flood of the smallest commands; every PING of it must have its PONG."""
    batches, pings = 100 * target.scale, 500
    ping = simple_frame(build_command("PING", {}))
    silent = simple_frame(build_command("FLOW", {"consumer_id": 1, "messagePermits": 1}))
    batch = (ping + silent * 3) * pings
    connection = await connected(target)
    answered = 0

    async def count_answers() -> None:
        nonlocal answered
        while answered < batches * pings:
            await connection.receive("PONG", timeout_s=60)
            answered += 1

    counting = asyncio.create_task(count_answers())
    try:
        for _ in range(batches):
            connection.send_bytes(batch)
            await connection.drain()
        await counting
        return Counter({ANSWERED: answered, WAITING: 3 * batches * pings})
    finally:
        counting.cancel()
        await connection.close()


async def flood(target: Target) -> Outcomes:
    """Silent commands as fast as a thread can send them: others must be served in between."""
    seconds = 2.0 * min(target.scale, 3)
    frame = simple_frame(build_command("FLOW", {"consumer_id": 1, "messagePermits": 1}))
    sending = asyncio.create_task(asyncio.to_thread(send_for, target.pulsar, frame * 20_000, seconds))
    served, slowest_s = 0, 0.0
    while not sending.done():
        began = time.monotonic()
        connection = await connected(target)
        await connection.close()
        served, slowest_s = served + 1, max(slowest_s, time.monotonic() - began)
    frames = await sending
    assert slowest_s <= FLOODED_HANDSHAKE_S_MAX, f"a handshake took {slowest_s:.1f} s, {served} were served"
    return Counter({WAITING: frames, ANSWERED: served})


async def drip(target: Target) -> Outcomes:
    """A good frame, one byte at a time."""
    connection = await connected(target)
    try:
        for byte in simple_frame(build_command("PING", {})):
            connection.send_bytes(bytes([byte]))
            await connection.drain()
            await asyncio.sleep(0)
        await connection.receive("PONG")
        return Counter({ANSWERED: 1})
    finally:
        await connection.close()


async def churn(target: Target) -> Outcomes:
    """Connections that come and go, half of them in the middle of a handshake."""
    connect = simple_frame(build_command("CONNECT", {"client_version": "f"}))

    async def come_and_go(number: int) -> None:
        connection = await RawConnection.open(target.pulsar)
        connection.send_bytes(connect[: number % len(connect)] if number % 2 else connect)
        await connection.close()

    numbers = range(200 * target.scale)
    for start in range(0, len(numbers), SIDE_BY_SIDE):
        await asyncio.gather(*(come_and_go(number) for number in numbers[start : start + SIDE_BY_SIDE]))
    return Counter({WAITING: len(numbers)})


async def never_reads_answers(target: Target) -> Outcomes:
    """Sends PINGs without reading; the broker must stop reading as well."""
    reader, writer = await bare_connection(target)
    batch = simple_frame(build_command("PING", {})) * 5000
    limit, sent = 256 * 1024 * 1024, 0
    try:
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < limit:
                writer.write(batch)
                sent += len(batch)
                async with asyncio.timeout(1.0):
                    await writer.drain()
        assert sent < limit, f"the broker took {sent} bytes of a peer that reads nothing"
        return Counter({WAITING: 1})
    finally:
        writer.transport.abort()
        del reader


async def never_reads_messages(target: Target) -> Outcomes:
    """Consumers with permits for everything that read nothing, on a topic of 16 MiB."""
    sender, topic = await producing(target)
    payload = target.rng.randbytes(64 * 1024)
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    try:
        for sequence_id in range(256):
            command = build_command("SEND", {"producer_id": 1, "sequence_id": sequence_id})
            sender.send_bytes(payload_frame(command, metadata, payload))
            await sender.receive("SEND_RECEIPT")
    finally:
        await sender.close()
    writers = []
    for number in range(10):
        _, writer = await bare_connection(target)
        writers.append(writer)
        subscribe: corpus.Fields = {
            "topic": topic,
            "subscription": f"s{number}",
            "subType": "Exclusive",
            "consumer_id": 1,
            "request_id": 2,
            "initialPosition": "Earliest",
        }
        writer.write(simple_frame(build_command("SUBSCRIBE", subscribe)))
        writer.write(simple_frame(build_command("FLOW", {"consumer_id": 1, "messagePermits": 100_000})))
        await writer.drain()
    await produce_and_consume(target, topic)
    for writer in writers:
        writer.transport.abort()
    return Counter({WAITING: len(writers)})


ATTACKS: Final[tuple[Callable[[Target], Awaitable[Outcomes]], ...]] = (
    noise_before_connect,
    noise_after_connect,
    truncated,
    mutated,
    lying,
    claimed,
    lying_messages,
    bad_checksum,
    out_of_order,
    never_opened,
    version_5_wrong_order,
    version_5_flood,
    small_frames,
    flood,
    drip,
    churn,
    never_reads_answers,
    never_reads_messages,
)
