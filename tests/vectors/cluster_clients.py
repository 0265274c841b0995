"""The clients of the recorded cluster.

The words of an operation say what they did, and the entries of the recorded ledgers with which messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

import pulsar
from pulsar.schema import AvroSchema, Boolean, Integer, JsonSchema, Record, String

from magnetar.snapshot.node_path import describe
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.interop.support import connect
from tests.support.command_json import Json, fill
from tests.support.mover import Mover
from tests.support.raw_client import RawConnection, build_command, payload_frame
from tests.vectors.scripts import Op

_ORDERS: Final = "persistent://shop/orders"
_PACKS: Final = "persistent://packs/ns"
_TYPES: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Shared": pulsar.ConsumerType.Shared,
    "Failover": pulsar.ConsumerType.Failover,
    "KeyShared": pulsar.ConsumerType.KeyShared,
}
_TXN_MS: Final = 600_000


class E1(Record):  # type: ignore[misc]
    """A value of the topic `avro`; the name is part of the definition."""

    a = Integer()
    b = String()


class G1(Record):  # type: ignore[misc]
    """A value of the topic `json`."""

    name = String()
    ok = Boolean()


class Clients:
    """The clients that are open."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.client = connect(url)
        self._producers: dict[str, pulsar.Producer] = {}
        self._consumers: dict[str, pulsar.Consumer] = {}
        self._received: dict[str, list[pulsar.Message]] = {}
        self._topic = ""
        """The one that the last operation with nodes was about."""
        self._words: dict[str, Callable[[Sequence[str]], None]] = {
            r"subscribe (?!gone)(\w+) (\w+)": lambda found: self._subscribe(found[0], found[1]),
            r"subscribe gone": lambda _: self._subscribe("s", "Exclusive", is_latest=True),
            r"create producer (\w+)": lambda found: self._create(found[0]),
            r"send (\d+)": lambda found: self._send(int(found[0])),
            r"send to term": lambda _: self._send(4),
            r"send to gone": lambda _: self._send(25),
            r"send 4 batches of 10": lambda _: self._send_batches(),
            r"send 5 delayed, 1 not": lambda _: self._send_delayed(),
            r"producer AVRO v0": lambda _: self._send_value("avro", AvroSchema(E1), E1(a=1, b="x")),
            r"producer AVRO v0 again": lambda _: self._send_value("avro", AvroSchema(E1), E1(a=2, b="y")),
            r"producer JSON v0": lambda _: self._send_value("json", JsonSchema(G1), G1(name="n", ok=True)),
            r"send with sequence ids 1 2 3 3 5 100, second producer 7": lambda _: self._send_numbered(
                f"{_ORDERS}/dedup", {"dd-1": (1, 2, 3, 3, 5, 100), "dd-2": (7,)}
            ),
            r"send with producer one \(1 2 3 3 9\) and two": lambda _: self._send_numbered(
                f"{_PACKS}/dd", {"one": (1, 2, 3, 3, 9), "two": (5, 6, 40, 42)}
            ),
            r"send 12 keyed \(one empty\)|send again": lambda _: self._send_keyed(),
            r"java client: 3 transactions .*": lambda _: asyncio.run(self._transact()),
            r"producer on auto-created partitioned topic": lambda _: self._send_to_partitions(),
            r"producer, consumer, 50 messages": lambda _: self._send_packed(),
            r"ack every 2. of 45": lambda _: self._acknowledge("z", 45, range(0, 45, 2)),
            r"bucket delayed delivery: 45 delayed messages": lambda _: self._send_in_buckets(),
            r"(\w+): receive (\d+), cumulative ack of the last": self._acknowledge_until,
            r"(\w+): (?:receive (\d+), )?ack individually indexes (\[.*\])": lambda found: self._acknowledge(
                found[0], int(found[1] or 0), json.loads(found[2])
            ),
            r"reload many by stats of a lookup \+ subscribe": lambda _: self._reload(),
            r"close clients( of many)?": lambda _: self._close(),
        }

    def perform(self, operation: Op) -> bool:
        """Does what the operation did; returns False for words that are unknown."""
        topics = {describe(write.get("path", "/")).topic for write in operation["writes"]}
        named = {topic for topic in topics if topic and "/__" not in topic}
        if len(named) == 1:
            (self._topic,) = named
        for pattern, action in self._words.items():
            if found := re.fullmatch(pattern, operation["op"]):
                action(found.groups())
                return True
        return False

    def _subscribe(self, name: str, kind: str, *, is_latest: bool = False) -> None:
        self._consumers[name] = self.client.subscribe(
            self._topic,
            name,
            consumer_type=_TYPES[kind],
            initial_position=getattr(pulsar.InitialPosition, "Latest" if is_latest else "Earliest"),
            batch_index_ack_enabled=True,
        )
        self._received[name] = []

    def _create(self, topic: str) -> None:
        self._topic = f"{_ORDERS}/{topic}"
        self._producer(self._topic, "p-dev")

    def _producer(self, topic: str, name: str = "c1-0-12", **options: object) -> pulsar.Producer:
        if topic not in self._producers:
            self._producers[topic] = self.client.create_producer(
                topic, producer_name=name, batching_enabled=False, **options
            )
        return self._producers[topic]

    def _send(self, count: int) -> None:
        producer = self._producer(self._topic)
        for number in range(count):
            producer.send(b"m%d" % number)

    def _send_batches(self) -> None:
        producer = self.client.create_producer(
            self._topic,
            producer_name="b-dev",
            batching_enabled=True,
            batching_max_messages=10,
            batching_max_publish_delay_ms=10_000,
        )
        for number in range(40):
            properties = {"i": str(number)} if number % 7 == 0 else {}
            producer.send_async(
                b"b%d" % number, lambda *_: None, partition_key=f"k{number % 3}", properties=properties
            )
        producer.flush()
        producer.close()

    def _send_delayed(self) -> None:
        producer = self.client.create_producer(self._topic, producer_name="c1-0-1", batching_enabled=False)
        for number in range(5):
            producer.send(b"later%d" % number, deliver_after=timedelta(minutes=10 + number))
        producer.send(b"now")
        producer.close()

    def _send_value(self, topic: str, schema: object, value: object) -> None:
        producer = self.client.create_producer(
            f"{_ORDERS}/{topic}", schema=schema, producer_name="c1-0-2", batching_enabled=False
        )
        producer.send(value)
        producer.close()

    def _send_numbered(self, topic: str, numbers: dict[str, tuple[int, ...]]) -> None:
        for name, ids in numbers.items():
            producer = self.client.create_producer(topic, producer_name=name, batching_enabled=False)
            for number, sequence_id in enumerate(ids):
                payload = {"dd-1": b"x%d" % number, "dd-2": b"y"}.get(name, b"x")
                producer.send(payload, sequence_id=sequence_id)
            producer.close()

    def _send_keyed(self) -> None:
        producer = self.client.create_producer(
            f"{_ORDERS}/compact", producer_name="c1-0-7", batching_enabled=False
        )
        for number in range(12):
            producer.send(b"" if number == 9 else b"v%d" % number, partition_key=f"key{number % 4}")
        producer.close()

    async def _transact(self) -> None:
        """Two acknowledgements and two messages in each transaction; the third stays open."""
        mover = Mover(await RawConnection.open(self._url), f"{_ORDERS}/txn-in", f"{_ORDERS}/txn-out")
        await mover.cnx.connect()
        await mover.subscribe(mover.source, 1, "txn-sub")
        for producer, topic in ((1, mover.target), (2, mover.source)):
            fields: dict[str, Json] = {"topic": topic, "producer_id": producer, "txn_enabled": True}
            fields["producer_name"] = f"c1-0-{11 - producer}"
            await mover.ask("PRODUCER", "PRODUCER_SUCCESS", **fields)
        for number in range(6):
            await self._publish(mover, 2, number, b"in-%d" % number, {})
        sent = 0
        for coordinator, word in ((1, "commit"), (0, "abort"), (1, "open")):
            mover.coordinator = coordinator
            await mover.find_coordinator()
            txn = await mover.begin(_TXN_MS, "txn-sub")
            for number in range(2):
                _, position, _ = await mover.message()
                await mover.acknowledge(position, txn)
                await self._publish(mover, 1, sent, b"out-%s%d" % (word.encode(), number), txn)
                sent += 1
            if word != "open":
                await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=word.upper(), **txn)
        await mover.cnx.close()

    @staticmethod
    async def _publish(
        mover: Mover, producer: int, number: int, payload: bytes, txn: dict[str, Json]
    ) -> None:
        command = build_command("SEND", {"producer_id": producer, "sequence_id": number, **txn})
        metadata = MessageMetadata(
            producer_name=f"c1-0-{11 - producer}",
            sequence_id=number,
            publish_time=time.time_ns() // 1_000_000,
            uncompressed_size=len(payload),
        )
        fill(metadata, txn)
        mover.cnx.send_bytes(payload_frame(command, metadata, payload))
        await mover.hear("SEND_RECEIPT")

    def _send_to_partitions(self) -> None:
        producer = self.client.create_producer(f"{_ORDERS}/autopart", batching_enabled=False)
        producer.send(b"x")
        producer.close()

    def _send_packed(self) -> None:
        topic = f"{_PACKS}/z"
        self._consumers["z"] = self.client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        self._received["z"] = []
        producer = self._producer(topic, "c1-8-0")
        for number in range(50):
            producer.send(b"m%d" % number)

    def _send_in_buckets(self) -> None:
        topic = f"{_PACKS}/dl"
        self._consumers["dl"] = self.client.subscribe(topic, "d", pulsar.ConsumerType.Shared)
        producer = self._producer(topic, "c1-8-2")
        for number in range(45):
            producer.send(b"l%d" % number, deliver_after=timedelta(seconds=3000 + 10 * number))

    def _receive(self, name: str, count: int) -> None:
        consumer = self._consumers[name]
        self._received[name] += [consumer.receive(timeout_millis=30_000) for _ in range(count)]

    def _acknowledge_until(self, found: Sequence[str]) -> None:
        name, count = found
        self._receive(name, int(count))
        self._consumers[name].acknowledge_cumulative(self._received[name][-1])

    def _acknowledge(self, name: str, count: int, places: Iterable[int]) -> None:
        self._receive(name, count)
        for place in places:
            self._consumers[name].acknowledge(self._received[name][place])

    def _reload(self) -> None:
        self._topic = f"{_ORDERS}/many"
        self._subscribe("shared", "Shared")

    def _close(self) -> None:
        for one in (*self._consumers.values(), *self._producers.values()):
            with contextlib.suppress(pulsar.AlreadyClosed):
                one.close()
        self._producers.clear()
