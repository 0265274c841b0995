"""A client that moves messages from one topic to another in transactions; it can leave a transaction at any step."""

from __future__ import annotations

import itertools

from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.command_json import Json
from tests.support.raw_client import Entry, Frame, RawConnection, build_command, payload_frame

SOURCE, TARGET = "persistent://public/default/source", "persistent://public/default/target"

Message = tuple[int, dict[str, Json], bytes]
"""Consumer id, position and payload."""


class Mover:
    """Consumer 1 reads the source as `s`, producer 1 writes to the target, producer 2 to the source."""

    def __init__(self, cnx: RawConnection, source: str, target: str) -> None:
        self.cnx = cnx
        self.source = source
        self.target = target
        self.coordinator = 3
        """The coordinator that is asked for transactions."""
        self._requests = itertools.count(1)
        self._sequence = itertools.count()
        self.waiting: list[Message] = []
        """Messages that came while an answer was awaited."""

    @classmethod
    async def open(
        cls, url: str, source: str = SOURCE, target: str = TARGET, token: str | None = None
    ) -> Mover:
        mover = cls(await RawConnection.open(url), source, target)
        await mover.cnx.connect(token=token)
        for topic in (target, source):
            # One connection for all: of several brokers this one takes them, unless another one has.
            await mover.ask("LOOKUP", "LOOKUP_RESPONSE", topic=topic, authoritative=True)
        await mover.ask("PRODUCER", "PRODUCER_SUCCESS", topic=target, producer_id=1, txn_enabled=True)
        await mover.ask("PRODUCER", "PRODUCER_SUCCESS", topic=source, producer_id=2)
        await mover.subscribe(source, 1)
        await mover.find_coordinator()
        return mover

    async def find_coordinator(self) -> None:
        """Introduces itself to the coordinator, as clients do: the broker that owns its partition runs it."""
        topic = f"persistent://pulsar/system/transaction_coordinator_assign-partition-{self.coordinator}"
        await self.ask("LOOKUP", "LOOKUP_RESPONSE", topic=topic, authoritative=True)
        await self.ask("TC_CLIENT_CONNECT_REQUEST", "TC_CLIENT_CONNECT_RESPONSE", tc_id=self.coordinator)

    async def subscribe(self, topic: str, consumer_id: int, name: str = "s") -> None:
        await self.ask(
            "SUBSCRIBE",
            "SUCCESS",
            topic=topic,
            subscription=name,
            subType="Shared",
            consumer_id=consumer_id,
            initialPosition="Earliest",
        )
        self.cnx.send("FLOW", consumer_id=consumer_id, messagePermits=1000)

    async def ask(self, kind: str, answer: str, **fields: Json) -> Frame:
        self.cnx.send(kind, request_id=next(self._requests), **fields)
        return await self.hear(answer)

    async def hear(self, answer: str) -> Frame:
        while (frame := await self.cnx.receive()).type_name != answer:
            self._keep(frame)
        return frame

    def _keep(self, frame: Frame) -> None:
        if frame.type_name == "MESSAGE":
            message = frame.command.message
            position: dict[str, Json] = {
                "ledgerId": message.message_id.ledgerId,
                "entryId": message.message_id.entryId,
            }
            self.waiting.append((message.consumer_id, position, entry_of(frame).payload))

    async def message(self) -> Message:
        while not self.waiting:
            self._keep(await self.cnx.receive())
        return self.waiting.pop(0)

    async def publish(
        self, producer_id: int, payload: bytes, txn: dict[str, Json] | None = None, *, batch: int = 0
    ) -> None:
        """Sends a message and waits until it is stored; arguments as in `send`."""
        self.send(producer_id, payload, txn, batch=batch)
        await self.hear("SEND_RECEIPT")

    def send(
        self, producer_id: int, payload: bytes, txn: dict[str, Json] | None = None, *, batch: int = 0
    ) -> None:
        """`batch`: messages that the payload claims to have, 0 = not batched."""
        sequence_id = next(self._sequence)
        command = build_command(
            "SEND", {"producer_id": producer_id, "sequence_id": sequence_id, **(txn or {})}
        )
        metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
        if batch:
            metadata.num_messages_in_batch = batch
        self.cnx.send_bytes(payload_frame(command, metadata, payload))

    async def acknowledge(
        self,
        position: dict[str, Json],
        txn: dict[str, Json] | None = None,
        *,
        consumer_id: int = 1,
        kind: str = "Individual",
    ) -> None:
        await self.acknowledge_all([position], txn, consumer_id=consumer_id, kind=kind)

    async def acknowledge_all(
        self,
        positions: list[dict[str, Json]],
        txn: dict[str, Json] | None = None,
        *,
        consumer_id: int = 1,
        kind: str = "Individual",
    ) -> None:
        """Acknowledges the messages in one command."""
        named: list[Json] = [*positions]
        answer = await self.ask(
            "ACK",
            "ACK_RESPONSE",
            consumer_id=consumer_id,
            ack_type=kind,
            message_id=named,
            **(txn or {}),
        )
        assert not answer.command.ackResponse.HasField("error"), answer.command

    async def begin(self, timeout_ms: int, subscription: str = "s") -> dict[str, Json]:
        asked: dict[str, Json] = {"tc_id": self.coordinator, "txn_ttl_seconds": timeout_ms}
        found = (await self.ask("NEW_TXN", "NEW_TXN_RESPONSE", **asked)).command.newTxnResponse
        txn: dict[str, Json] = {
            "txnid_most_bits": found.txnid_most_bits,
            "txnid_least_bits": found.txnid_least_bits,
        }
        await self.ask(
            "ADD_PARTITION_TO_TXN", "ADD_PARTITION_TO_TXN_RESPONSE", partitions=[self.target], **txn
        )
        await self.ask(
            "ADD_SUBSCRIPTION_TO_TXN",
            "ADD_SUBSCRIPTION_TO_TXN_RESPONSE",
            subscription=[{"topic": self.source, "subscription": subscription}],
            **txn,
        )
        return txn


def entry_of(frame: Frame) -> Entry:
    entry = frame.entry()
    assert entry.checksum == "ok"
    return entry
