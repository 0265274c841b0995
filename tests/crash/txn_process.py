"""Moves messages in transactions: `python -m tests.crash.txn_process URL SOURCE TARGET RECORDS`.

Says `ready`, then works until it is killed. Each of some clients stores messages in the source, and moves what it gets to
the target: it acknowledges and publishes in one transaction, then commits, aborts, or leaves it open. An aborted or
abandoned transaction gives its messages back, and another one moves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from pathlib import Path

from tests.crash.records import Message, Recorder
from tests.crash.verdict import PLAIN
from tests.support.mover import Mover
from tests.support.raw_client import PeerClosedError

CLIENTS = 3
MOVED = 3
"""Messages of one transaction."""
TIMEOUT_MS = 2500
"""Shorter than most rounds, so that time-outs come before the kill and behind it."""
PERMITS = 1000
"""As many as `Mover.subscribe` gives."""
SIZE = 100
KEEPER = "keeper"
"""A subscription of the target that never acknowledges, so that the target keeps everything."""


async def run(url: str, source: str, target: str, records: Path) -> None:
    recorder, numbers = Recorder(records), itertools.count()
    movers = [await Mover.open(url, source, target) for _ in range(CLIENTS)]
    await movers[0].subscribe(target, 9, KEEPER)
    movers[0].cnx.send("CLOSE_CONSUMER", consumer_id=9, request_id=1_000_000)
    await movers[0].hear("SUCCESS")
    print("ready", flush=True)
    async with asyncio.TaskGroup() as group:
        for place, mover in enumerate(movers):
            group.create_task(_move_on(mover, recorder, numbers, place))


async def _move_on(mover: Mover, recorder: Recorder, numbers: itertools.count[int], place: int) -> None:
    received = 0
    for turn in itertools.count():
        for _ in range(MOVED):
            number = next(numbers)
            await mover.publish(2, Message("source", number).body(SIZE))
            recorder.moving("stored", number)
        plain = turn * CLIENTS + place
        await mover.publish(1, Message(PLAIN, plain).body(SIZE))
        recorder.moving("plain", plain)
        begun = await mover.begin(TIMEOUT_MS)
        txn = f"{begun['txnid_most_bits']}-{begun['txnid_least_bits']}"
        for _ in range(MOVED):
            _, position, payload = await mover.message()
            received += 1
            if received % (PERMITS // 2) == 0:
                mover.cnx.send("FLOW", consumer_id=1, messagePermits=PERMITS // 2)
            number = Message.of(payload).number
            await mover.publish(1, Message(txn, number).body(SIZE), begun)
            await mover.acknowledge(position, begun)
            recorder.moving("moved", txn, number)
        if turn % 5 == 4:
            continue  # Left open.
        action = "ABORT" if turn % 5 == 2 else "COMMIT"
        recorder.moving("ending", txn, action)
        answer = await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **begun)
        if answer.command.endTxnResponse.HasField("error"):
            raise RuntimeError(f"transaction {txn} cannot be ended: {answer.command}")
        recorder.moving("ended", txn)


if __name__ == "__main__":
    # The broker is killed first, this process an instant later.
    with contextlib.suppress(PeerClosedError, ExceptionGroup):
        asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
