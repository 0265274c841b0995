"""A hand-made consumer that asks for ack receipts: `python -m tests.crash.receipt_process URL TOPIC SUB RECORDS`.

The official Python client cannot ask for them. Says `ready` when subscribed, then acknowledges whole entries
until it is killed; records each ack before it is sent and each receipt when it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from tests.crash.plan import leaves_unacked
from tests.crash.records import Position, Recorder
from tests.support.raw_client import PeerClosedError, RawConnection

PERMITS = 500
CONSUMER = 1


async def run(url: str, topic: str, subscription: str, records: Path) -> None:
    recorder = Recorder(records)
    connection = await RawConnection.open(url)
    await connection.connect()
    connection.send("LOOKUP", topic=topic, request_id=1)
    await connection.receive("LOOKUP_RESPONSE")
    connection.send(
        "SUBSCRIBE",
        topic=topic,
        subscription=subscription,
        subType="Exclusive",
        consumer_id=CONSUMER,
        request_id=2,
        initialPosition="Earliest",
    )
    await connection.receive("SUCCESS")
    connection.send("FLOW", consumer_id=CONSUMER, messagePermits=PERMITS)
    print("ready", flush=True)
    waiting: dict[int, Position] = {}
    request, used = 10, 0
    while True:
        frame = await connection.receive("MESSAGE", "ACK_RESPONSE", timeout_s=600)
        if frame.type_name == "ACK_RESPONSE":
            answer = frame.command.ackResponse
            if not answer.HasField("error"):
                recorder.entry_acked(waiting.pop(answer.request_id))
            continue
        identity = frame.command.message.message_id
        used += frame.entry().metadata.num_messages_in_batch
        if used >= PERMITS // 2:
            connection.send("FLOW", consumer_id=CONSUMER, messagePermits=used)
            used = 0
        position = Position(identity.ledgerId, identity.entryId)
        if leaves_unacked(position.entry):
            continue
        request += 1
        waiting[request] = position
        recorder.entry_acking(position)
        connection.send(
            "ACK",
            consumer_id=CONSUMER,
            ack_type="Individual",
            message_id=[{"ledgerId": position.ledger, "entryId": position.entry}],
            request_id=request,
        )


if __name__ == "__main__":
    with contextlib.suppress(PeerClosedError):  # the broker is killed first, this process an instant later
        asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
