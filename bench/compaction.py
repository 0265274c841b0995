"""How fast is a topic compacted, and how long do other clients wait meanwhile?

`python -m bench.compaction [--messages N] [--keys N] [--batch N] [--payload BYTES] [--url pulsar://… --admin http://…]`

Fills a topic with messages whose keys are drawn at random, asks for its compaction, and waits for SUCCESS. Meanwhile one
client publishes 500 unbatched messages of 1 KiB a second to another topic, and a probe sends PING once a millisecond.
Columns:
messages and keys; seconds to fill; seconds of the compaction and messages per second, from the request to SUCCESS; entries
and MiB of the compacted ledger; CPU seconds of the broker and of its worker; the longest wait for a PONG and for a
receipt, in ms, and in brackets before the compaction.

The frames are made here and not by a client library, because filling the topic would otherwise take the most time.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.peers import Magnetar
from bench.probe import StallProbe
from bench.processes import TICKS_PER_S, cpu_s
from protocol.frame import command_frame, message_body
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, SingleMessageMetadata

TOPIC = "persistent://public/default/compacted"
OTHER = "persistent://public/default/other"
IN_FLIGHT = 50
"""Batches that are sent and not confirmed."""
PUBLISH_INTERVAL_S = 0.002


class Publisher:
    """A connection with one producer."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._sequence_id = 0
        connect = BaseCommand(type=BaseCommand.CONNECT)
        connect.connect.client_version, connect.connect.protocol_version = "bench", 19
        self._ask(connect, BaseCommand.CONNECTED)
        lookup = BaseCommand(type=BaseCommand.LOOKUP)
        lookup.lookupTopic.topic, lookup.lookupTopic.request_id = topic, 1
        self._ask(lookup, BaseCommand.LOOKUP_RESPONSE)
        producer = BaseCommand(type=BaseCommand.PRODUCER)
        producer.producer.topic, producer.producer.producer_id, producer.producer.request_id = topic, 1, 2
        self._ask(producer, BaseCommand.PRODUCER_SUCCESS)

    def close(self) -> None:
        self._socket.close()

    def _ask(self, command: BaseCommand, answer: BaseCommand.Type.ValueType) -> None:
        self._socket.sendall(command_frame(command))
        self.wait_for(answer)

    def wait_for(self, kind: BaseCommand.Type.ValueType) -> None:
        while True:
            while len(self._rest) < 4 or len(self._rest) < 4 + struct.unpack(">I", self._rest[:4])[0]:
                part = self._socket.recv(1 << 16)
                if not part:
                    raise ConnectionError("the broker closed the connection")
                self._rest += part
            size, command_size = struct.unpack(">II", self._rest[:8])
            command = BaseCommand.FromString(self._rest[8 : 8 + command_size])
            self._rest = self._rest[4 + size :]
            if command.type == kind:
                return
            if command.type == BaseCommand.PING:
                pong = BaseCommand(type=BaseCommand.PONG)
                pong.pong.SetInParent()
                self._socket.sendall(command_frame(pong))
            elif command.type in (BaseCommand.ERROR, BaseCommand.SEND_ERROR):
                raise ConnectionError(f"the broker refused: {command}")

    def send(self, body: bytes, messages: int) -> None:
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id, command.send.sequence_id = 1, self._sequence_id
        command.send.num_messages = messages
        self._sequence_id += 1
        packed = command.SerializeToString()
        head = struct.pack(">II", len(packed) + 4 + len(body), len(packed))
        self._socket.sendall(head + packed + body)


def bodies(messages: int, keys: int, batch: int, payload: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the bodies of SENDs, each with its number of messages."""
    chosen = random.Random(7)
    for first in range(0, messages, batch):
        count = min(batch, messages - first)
        metadata = MessageMetadata(
            producer_name="bench", sequence_id=first, publish_time=int(time.time() * 1000)
        )
        if batch == 1:
            metadata.partition_key = f"{chosen.randrange(keys):09d}"
            yield message_body(metadata, payload), 1
            continue
        parts = []
        for number in range(first, first + count):
            single = SingleMessageMetadata(
                partition_key=f"{chosen.randrange(keys):09d}", payload_size=len(payload), sequence_id=number
            ).SerializeToString()
            parts += [struct.pack(">I", len(single)), single, payload]
        metadata.num_messages_in_batch = count
        yield message_body(metadata, b"".join(parts)), count


def fill(host: str, port: int, options: argparse.Namespace) -> float:
    """Publishes everything and returns the seconds that it took."""
    started = time.perf_counter()
    in_flight = 0
    with closing(Publisher(host, port, TOPIC)) as publisher:
        for body, count in bodies(options.messages, options.keys, options.batch, bytes(options.payload)):
            if in_flight == IN_FLIGHT:
                publisher.wait_for(BaseCommand.SEND_RECEIPT)
                in_flight -= 1
            publisher.send(body, count)
            in_flight += 1
        for _ in range(in_flight):
            publisher.wait_for(BaseCommand.SEND_RECEIPT)
    return time.perf_counter() - started


class Neighbour:
    """A client that publishes to another topic and keeps its longest wait for a receipt."""

    def __init__(self, host: str, port: int) -> None:
        self.worst_ms = 0.0
        self._publisher = Publisher(host, port, OTHER)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        body = message_body(
            MessageMetadata(producer_name="neighbour", sequence_id=0, publish_time=0), bytes(1024)
        )
        while not self._stop.wait(PUBLISH_INTERVAL_S):
            started = time.perf_counter()
            self._publisher.send(body, 1)
            self._publisher.wait_for(BaseCommand.SEND_RECEIPT)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - started) * 1000)

    def take_worst_ms(self) -> float:
        worst, self.worst_ms = self.worst_ms, 0.0
        return worst

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._publisher.close()


def ask(method: str, url: str) -> Any:
    """Returns the JSON of an admin request, None without a body."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def compact(admin: str) -> float:
    """Returns the seconds from the request to SUCCESS."""
    url = f"{admin}/admin/v2/{TOPIC.replace('://', '/')}/compaction"
    started = time.perf_counter()
    ask("PUT", url)
    while (found := ask("GET", url))["status"] == "RUNNING":
        time.sleep(0.02)
    if found["status"] != "SUCCESS":
        raise SystemExit(f"compaction ended as {found}")
    return time.perf_counter() - started


def ended_children_s(pid: int) -> float:
    """Returns the CPU seconds of the process's children that have ended: here the compaction worker."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S


def measure(url: str, admin: str, pid: int | None, options: argparse.Namespace) -> str:
    """Returns one row of the table."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 6650
    filled_s = fill(host, port, options)
    with StallProbe(host, port) as probe, closing(Neighbour(host, port)) as neighbour:
        time.sleep(2)
        idle = probe.take_worst_ms(), neighbour.take_worst_ms()
        before = cpu_s(pid) if pid else 0.0
        compaction_s = compact(admin)
        cpu = cpu_s(pid) - before if pid else 0.0
        worker = ended_children_s(pid) if pid else 0.0
        waits = probe.take_worst_ms(), neighbour.take_worst_ms()
    ledger = ask("GET", f"{admin}/admin/v2/{TOPIC.replace('://', '/')}/internalStats")["compactedLedger"]
    return (
        f"| {options.messages:,} | {options.keys:,} | {options.batch:,} | {filled_s:.1f} | {compaction_s:.1f}"
        f" | {options.messages / compaction_s:,.0f} | {ledger['entries']:,} | {ledger['size'] / (1 << 20):.0f}"
        f" | {cpu:.1f} + {worker:.1f} | {waits[0]:.1f} ({idle[0]:.1f}) | {waits[1]:.1f} ({idle[1]:.1f}) |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1000, help="messages in a batch; 1: unbatched")
    parser.add_argument("--payload", type=int, default=100, help="bytes of a message")
    parser.add_argument("--url", help="service URL of a running broker; otherwise one is started")
    parser.add_argument("--admin", default="http://127.0.0.1:8080", help="admin URL of that broker")
    options = parser.parse_args()
    print(
        "| messages | keys | batch | fill s | compaction s | messages/s | entries | MiB | CPU s"
        " | PONG ms (idle) | receipt ms (idle) |\n" + "| --- " * 11 + "|"
    )
    if options.url:
        print(measure(options.url, options.admin, None, options))
        return
    peer = Magnetar()
    try:
        peer.start()
        assert peer.metrics_url is not None
        admin = peer.metrics_url.partition("/metrics")[0]
        print(measure(peer.url, admin, peer.pid, options))
    finally:
        peer.close()


if __name__ == "__main__":
    main()
