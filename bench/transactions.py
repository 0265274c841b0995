"""Transactions: commits per second, the time of one, and the broker's CPU time for it.

`python -m bench.transactions [--peers magnetar] [--seconds 10] [--rounds 3] [--clients 8] [--messages 1 10]`

Each client has a connection of its own and does one transaction after the other: begin, name the topic, publish the
messages of 100 bytes without waiting between them, commit. The clients are in this process, so their work, which is the
same for every peer, limits the rate. Peers take turns within each round; the figures are medians of the rounds.

`--peers` takes what `python -m bench` takes; an address peer must have `transactionCoordinatorEnabled=true`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import time
from dataclasses import dataclass

from bench.peers import Magnetar, Peer, peers_of
from bench.processes import cpu_s
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.command_json import Json
from tests.support.raw_client import Frame, RawConnection, build_command, payload_frame

BODY = bytes(100)
COORDINATOR_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
"""Apache's broker opens coordinator 0 when this topic is looked up."""
TIMEOUT_MS = 60_000


@dataclass(slots=True, kw_only=True)
class Round:
    """Figures of one round."""

    commits_per_s: float
    """Transactions committed per second by all clients together."""
    p50_ms: float
    """Median time of a transaction, from its begin to the answer to its commit."""
    p99_ms: float
    """99 % of the transactions took no longer."""
    cpu_us: float | None
    """The broker's CPU time per transaction; None where the process is unknown."""


class Client:
    """One connection with a producer on a topic of its own."""

    def __init__(self, cnx: RawConnection, topic: str) -> None:
        self._cnx = cnx
        self._topic = topic
        self._requests = itertools.count(1)
        self._sequence = itertools.count()

    @classmethod
    async def open(cls, url: str, topic: str) -> Client:
        """Connects, and opens producer and coordinator."""
        client = cls(await RawConnection.open(url), topic)
        await client._cnx.connect()
        for name in (COORDINATOR_TOPIC, topic):
            await client._ask("LOOKUP", "LOOKUP_RESPONSE", topic=name)
        await client._ask("TC_CLIENT_CONNECT_REQUEST", "TC_CLIENT_CONNECT_RESPONSE", tc_id=0)
        await client._ask("PRODUCER", "PRODUCER_SUCCESS", topic=topic, producer_id=1, txn_enabled=True)
        return client

    async def _ask(self, kind: str, answer: str, **fields: Json) -> Frame:
        self._cnx.send(kind, request_id=next(self._requests), **fields)
        return await self._cnx.receive(answer)

    async def commit_one(self, messages: int) -> None:
        """One transaction. RuntimeError when it is not committed."""
        begun = (
            await self._ask("NEW_TXN", "NEW_TXN_RESPONSE", tc_id=0, txn_ttl_seconds=TIMEOUT_MS)
        ).command.newTxnResponse
        most, least = begun.txnid_most_bits, begun.txnid_least_bits
        txn: dict[str, Json] = {"txnid_most_bits": most, "txnid_least_bits": least}
        await self._ask(
            "ADD_PARTITION_TO_TXN", "ADD_PARTITION_TO_TXN_RESPONSE", partitions=[self._topic], **txn
        )
        for _ in range(messages):
            sequence_id = next(self._sequence)
            command = build_command("SEND", {"producer_id": 1, "sequence_id": sequence_id, **txn})
            metadata = MessageMetadata(
                producer_name="p",
                sequence_id=sequence_id,
                publish_time=1,
                txnid_most_bits=most,
                txnid_least_bits=least,
            )
            self._cnx.send_bytes(payload_frame(command, metadata, BODY))
        for _ in range(messages):
            await self._cnx.receive("SEND_RECEIPT")
        ended = await self._ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **txn)
        if ended.command.endTxnResponse.HasField("error"):
            raise RuntimeError(f"a transaction is not committed: {ended.command}")

    async def work(self, messages: int, until: float, times_s: list[float]) -> None:
        """Commits until the time comes, and notes how long each took."""
        while (began := time.perf_counter()) < until:
            await self.commit_one(messages)
            times_s.append(time.perf_counter() - began)

    async def close(self) -> None:
        """Closes the connection."""
        await self._cnx.close()


async def measure(peer: Peer, messages: int, clients: int, seconds: float) -> Round:
    """One round with one peer."""
    mark = time.time_ns()
    topics = [f"persistent://public/default/txn-{mark}-{number}" for number in range(clients)]
    open_clients = [await Client.open(peer.url, topic) for topic in topics]
    for client in open_clients:
        await client.commit_one(messages)
    times_s: list[float] = []
    before = cpu_s(peer.pid) if peer.pid else 0.0
    began = time.perf_counter()
    await asyncio.gather(*(one.work(messages, began + seconds, times_s) for one in open_clients))
    taken = time.perf_counter() - began
    used = cpu_s(peer.pid) - before if peer.pid else None
    for client in open_clients:
        await client.close()
    times_s.sort()
    return Round(
        commits_per_s=len(times_s) / taken,
        p50_ms=times_s[len(times_s) // 2] * 1000,
        p99_ms=times_s[len(times_s) * 99 // 100] * 1000,
        cpu_us=None if used is None else used / len(times_s) * 1e6,
    )


def line(name: str, messages: int, rounds: list[Round]) -> str:
    """Returns the medians of a peer's rounds as a row of a table."""
    rate = statistics.median(one.commits_per_s for one in rounds)
    p50 = statistics.median(one.p50_ms for one in rounds)
    p99 = statistics.median(one.p99_ms for one in rounds)
    known = [one.cpu_us for one in rounds if one.cpu_us is not None]
    cpu = f"{statistics.median(known):,.0f}" if known else ""
    return f"| {messages} | {name} | {rate:,.0f} | {rate * messages:,.0f} | {p50:.1f} | {p99:.1f} | {cpu} |"


def main(argv: list[str] | None = None) -> int:
    """Prints a table; returns 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", default="magnetar", metavar="PEERS")
    parser.add_argument("--seconds", type=float, default=10, metavar="S")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--clients", type=int, default=8, metavar="N")
    parser.add_argument("--messages", type=int, nargs="+", default=[1, 10], metavar="N")
    arguments = parser.parse_args(argv)
    peers = peers_of(arguments.peers)
    for place, peer in enumerate(peers):
        if isinstance(peer, Magnetar):
            peers[place] = Magnetar(peer.name, ("transactionCoordinatorEnabled=true",))
    found: dict[tuple[int, str], list[Round]] = {}
    try:
        for peer in peers:
            peer.start()
        for _ in range(arguments.rounds):
            for messages in arguments.messages:
                for peer in peers:
                    work = measure(peer, messages, arguments.clients, arguments.seconds)
                    found.setdefault((messages, peer.name), []).append(asyncio.run(work))
    finally:
        for peer in peers:
            peer.close()
    print("| messages each | broker | commits/s | messages/s | median, ms | 99 % within, ms | CPU each, µs |")
    print("|---|---|---|---|---|---|---|")
    for (messages, name), rounds in found.items():
        print(line(name, messages, rounds))
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
