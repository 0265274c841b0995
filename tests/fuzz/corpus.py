"""Bad bytes, made from a seed: the same seed gives the same bytes for ever.

Law of the place: pure functions of a `Random` and of names; nothing here opens a socket or knows how the broker
cuts frames. What an attack does with the bytes is in `attacks`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.support.command_json import Json
from tests.support.raw_client import build_command, payload_frame, simple_frame

FRAME_BYTES_MAX: Final = 5 * 1024 * 1024 + 10 * 1024
"""The default `maxMessageSize` and its padding; a frame's own size field counts."""

Fields = dict[str, Json]

_NUMBERS: Final = (0, 1, 2, 7, 99, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_TOPICS: Final = (
    "persistent://public/default/fuzz",
    "non-persistent://public/default/fuzz",
    "persistent://public/nope/x",
    "persistent://nope/nope/x",
    "persistent://public/default/fuzz-partition-3",
    "persistent://public/default/",
    "x",
    "://",
    "",
    "persistent://public/default/" + "n" * 5000,
    "persistent://public/default/ü/../%2F",
    "topic://public/default/fuzz",
    "segment://public/default/fuzz/0000-ffff-0",
)


def _number(rng: Random) -> int:
    return rng.choice(_NUMBERS) if rng.random() < 0.8 else rng.getrandbits(64)


def _message_id(rng: Random) -> Json:
    made: Fields = {"ledgerId": _number(rng), "entryId": _number(rng)}
    if rng.random() < 0.3:
        made["ack_set"] = [rng.randrange(-(2**63), 2**63) for _ in range(rng.randrange(4))]
    if rng.random() < 0.2:
        made["batch_index"] = rng.randrange(-(2**31), 2**31)
    return made


def _subscribe(rng: Random) -> Fields:
    return {
        "topic": rng.choice(_TOPICS),
        "subscription": rng.choice(("s", "", "a/b", "s" * 3000)),
        "subType": rng.choice(("Exclusive", "Shared", "Failover", "Key_Shared")),
        "consumer_id": _number(rng),
        "request_id": _number(rng),
        "durable": rng.random() < 0.5,
        "priority_level": rng.randrange(-(2**31), 2**31),
        "start_message_id": _message_id(rng),
        "read_compacted": rng.random() < 0.2,
        "keySharedMeta": {
            "keySharedMode": rng.choice(("AUTO_SPLIT", "STICKY")),
            "hashRanges": [
                {"start": rng.randrange(-10, 70_000), "end": rng.randrange(-10, 70_000)}
                for _ in range(rng.randrange(4))
            ],
        },
    }


def _producer(rng: Random) -> Fields:
    return {
        "topic": rng.choice(_TOPICS),
        "producer_id": _number(rng),
        "request_id": _number(rng),
        "producer_name": rng.choice(("p", "", "p" * 3000)),
        "epoch": _number(rng),
        "topic_epoch": _number(rng),
        "producer_access_mode": rng.choice(
            ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
        ),
    }


_MAKERS: Final[dict[str, Callable[[Random], Fields]]] = {
    "CONNECT": lambda rng: {"client_version": "f", "protocol_version": rng.randrange(-5, 100)},
    "SUBSCRIBE": _subscribe,
    "PRODUCER": _producer,
    "SEND": lambda rng: {"producer_id": _number(rng), "sequence_id": _number(rng)},
    "ACK": lambda rng: {
        "consumer_id": _number(rng),
        "ack_type": rng.choice(("Individual", "Cumulative")),
        "message_id": [_message_id(rng) for _ in range(rng.randrange(4))],
        "request_id": _number(rng),
    },
    "FLOW": lambda rng: {"consumer_id": _number(rng), "messagePermits": rng.choice((0, 1, 1000, 2**32 - 1))},
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": lambda rng: {
        "consumer_id": _number(rng),
        "message_ids": [_message_id(rng) for _ in range(rng.randrange(4))],
    },
    "SEEK": lambda rng: {
        "consumer_id": _number(rng),
        "request_id": _number(rng),
        "message_id": _message_id(rng),
    },
    "PARTITIONED_METADATA": lambda rng: {"topic": rng.choice(_TOPICS), "request_id": _number(rng)},
    "LOOKUP": lambda rng: {"topic": rng.choice(_TOPICS), "request_id": _number(rng)},
    "GET_TOPICS_OF_NAMESPACE": lambda rng: {
        "request_id": _number(rng),
        "namespace": rng.choice(("public/default", "public/nope", "x", "")),
        "topics_pattern": rng.choice(("persistent://public/default/.*", "(((", "(a+)+$")),
    },
    "WATCH_TOPIC_LIST": lambda rng: {
        "request_id": _number(rng),
        "watcher_id": _number(rng),
        "namespace": rng.choice(("public/default", "public/nope", "x", "")),
        "topics_pattern": rng.choice(("persistent://public/default/.*", "(((", "(a+)+$")),
    },
    "GET_SCHEMA": lambda rng: {"request_id": _number(rng), "topic": rng.choice(_TOPICS)},
    "NEW_TXN": lambda rng: {"request_id": _number(rng), "tc_id": _number(rng)},
    "SCALABLE_TOPIC_LOOKUP": lambda rng: {"session_id": _number(rng), "topic": rng.choice(_TOPICS)},
    "SCALABLE_TOPIC_CLOSE": lambda rng: {"session_id": _number(rng)},
    "SCALABLE_TOPIC_SUBSCRIBE": lambda rng: {
        "request_id": _number(rng),
        "topic": rng.choice(_TOPICS),
        "subscription": rng.choice(("s", "", "s" * 3000)),
        "consumer_name": rng.choice(("c", "", "c" * 3000)),
        "consumer_id": _number(rng),
        "consumer_type": rng.choice(("STREAM", "CHECKPOINT")),
    },
    "SCALABLE_TOPIC_UNSUBSCRIBE": lambda rng: {"request_id": _number(rng), "consumer_id": _number(rng)},
    "WATCH_SCALABLE_TOPICS": lambda rng: {
        "watch_id": _number(rng),
        "namespace": rng.choice(("public/default", "public/nope", "x", "")),
    },
    "WATCH_SCALABLE_TOPICS_CLOSE": lambda rng: {"watch_id": _number(rng)},
    "WATCH_TC_ASSIGNMENTS": lambda rng: {"watch_id": _number(rng)},
    "WATCH_TC_ASSIGNMENTS_CLOSE": lambda rng: {"watch_id": _number(rng)},
    "PING": lambda rng: {},
    "PONG": lambda rng: {},
    "UNSUBSCRIBE": lambda rng: {"consumer_id": _number(rng), "request_id": _number(rng)},
    "CLOSE_PRODUCER": lambda rng: {"producer_id": _number(rng), "request_id": _number(rng)},
    "CLOSE_CONSUMER": lambda rng: {"consumer_id": _number(rng), "request_id": _number(rng)},
    "GET_LAST_MESSAGE_ID": lambda rng: {"consumer_id": _number(rng), "request_id": _number(rng)},
    "CONSUMER_STATS": lambda rng: {"consumer_id": _number(rng), "request_id": _number(rng)},
}


def any_command(rng: Random, *, without: tuple[str, ...] = ()) -> BaseCommand:
    """A command that a client may send, with ids that were never opened and values at the edges."""
    name = rng.choice([name for name in _MAKERS if name not in without])
    return build_command(name, _MAKERS[name](rng))


def any_frame(rng: Random) -> bytes:
    command = any_command(rng)
    return message_frame(command, rng) if command.type == BaseCommand.SEND else simple_frame(command)


def message_frame(command: BaseCommand, rng: Random, *, checksum: str = "ok") -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    return payload_frame(command, metadata, rng.randbytes(rng.randrange(200)), checksum=checksum)


def noise(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((1, 3, 4, 7, 8, 9, 100, 5000)))


def mutated(frame: bytes, rng: Random) -> bytes:
    """Some bytes of the frame changed, some taken away, some doubled."""
    changed = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed))
        match rng.randrange(3):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1 if len(changed) > 1:
                del changed[at : at + rng.randrange(1, 5)]
            case _:
                changed[at:at] = changed[at : at + rng.randrange(1, 9)]
        if not changed:
            changed += b"\x00"
    return bytes(changed)


def lying_frames() -> Iterator[tuple[str, bytes]]:
    """Frames whose sizes do not fit together, each with its name. All of them are complete."""
    sizes = struct.Struct(">II").pack
    ping = build_command("PING", {}).SerializeToString()
    for total in (0, 1, 3):
        yield f"total size {total}", sizes(total, 0) + b"\x00" * 8
    yield "command longer than the frame", sizes(4 + len(ping), len(ping) + 1) + ping
    yield "command of 2^32-1 bytes", sizes(4 + len(ping), 2**32 - 1) + ping
    yield "no command at all", sizes(4, 0)
    yield "beginning of a SEND and nothing else", sizes(7, 3) + b"\x08\x06\x32"
    yield "total size over the limit", sizes(FRAME_BYTES_MAX - 3, 8)
    yield "total size 2^32-1", sizes(2**32 - 1, 8)
    yield "type without its sub-message", sizes(6, 2) + b"\x08\x04"
    yield "type of no command", sizes(6, 2) + b"\x08\x63"
    yield "sub-message of another type", sizes(9, 5) + b"\x08\x04\x92\x01\x00"
    topic = b"\x0a\x02\xff\xfe\x10\x01"
    body = b"\x08\x17\xba\x01" + bytes([len(topic)]) + topic
    yield "topic that is not UTF-8", sizes(4 + len(body), len(body)) + body


def _metadata(more: bytes) -> bytes:
    """A size and metadata with the required fields, followed by fields of the caller's."""
    packed = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString() + more
    return struct.pack(">I", len(packed)) + packed


def lying_messages(producer_id: int) -> Iterator[tuple[str, bytes]]:
    """SENDs of an open producer whose metadata cannot be read, each with its name."""

    def send(rest: bytes) -> bytes:
        body = build_command("SEND", {"producer_id": producer_id, "sequence_id": 0}).SerializeToString()
        return struct.pack(">II", 4 + len(body) + len(rest), len(body)) + body + rest

    yield "no metadata", send(b"")
    yield "half a size", send(b"\x00\x00")
    yield "metadata of 2^32-1 bytes", send(b"\xff\xff\xff\xff")
    yield "metadata longer than the rest", send(b"\x00\x00\x00\x09abc")
    yield "metadata that is no message", send(b"\x00\x00\x00\x03\xff\xff\xff")
    yield "metadata without required fields", send(b"\x00\x00\x00\x00payload")
    yield "key that is not UTF-8", send(_metadata(b"\x32\x02\xff\xfe"))
    yield "key that is not base64", send(_metadata(b"\x32\x01\x21\x88\x01\x01"))
    yield "batch of 2^31-1 messages", send(_metadata(b"\x58\xff\xff\xff\xff\x07"))
    yield "batch of -1 messages", send(_metadata(b"\x58" + b"\xff" * 9 + b"\x01"))
    yield "batch of no messages", send(_metadata(b"\x58\x00"))
    yield "chunk 5 of 2", send(_metadata(b"\xd2\x01\x01\x75\xd8\x01\x02\xe8\x01\x05"))
    yield "deliver at the end of time", send(_metadata(b"\x98\x01" + b"\xff" * 8 + b"\x7f"))
    yield "checksum marker and nothing else", send(b"\x0e\x01")
    yield "entry metadata from a client", send(b"\x0e\x02\x00\x00\x00\x02\x10\x05\x00\x00\x00\x00")
    yield "entry metadata of 2^32-1 bytes", send(b"\x0e\x02\xff\xff\xff\xff")
