"""Acknowledgement holes seen from outside: the same client and the same admin requests for Magnetar and Apache Pulsar.

`python -m bench.holes_beside --broker NAME=PULSAR_URL,ADMIN_URL,PID [--broker …] [--holes 100000] [--rounds 1]`

A Shared subscription receives twice as many messages of 100 bytes, unbatched, and acknowledges every second one. Of each
broker's process, in turn:

    acknowledgement   CPU per message that is acknowledged, with all work that the broker does in that time
    memory            resident bytes before the messages and after the acknowledgements
    stored            bytes of the holes, as far as the broker tells
    recovery          from the unload of the topic to statistics with every hole: time and CPU

Both need `maxUnackedMessagesPerConsumer=0`, `maxUnackedMessagesPerSubscription=0` and a
`managedLedgerMaxUnackedRangesToPersist` above the number of holes. docs/reference/benchmarks.md has results.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Final, NamedTuple

import pulsar

BODY: Final = b"x" * 100
LIMIT_S: Final = 600.0
"""Longest wait for anything; the time counts, so it is no time-out of a test."""


class Process(NamedTuple):
    """A broker that runs."""

    name: str
    service_url: str
    admin_url: str
    pid: int

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used, in all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """MiB of memory that it has."""
        return (
            int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / (1 << 20)
        )

    def ask(self, method: str, path: str) -> bytes:
        """Asks the admin API. Raises urllib's errors."""
        request = urllib.request.Request(f"{self.admin_url}/admin/v2/{path}", method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answered:
            return bytes(answered.read())


def measure(broker: Process, holes: int) -> None:
    """Prints the figures of one broker."""
    name = f"holes-{uuid.uuid4().hex}"
    path = f"persistent/public/default/{name}"
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    before_mib = broker.resident_mib()
    consumer = client.subscribe(
        f"persistent://public/default/{name}",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=2 * holes,
    )
    producer = client.create_producer(
        f"persistent://public/default/{name}",
        batching_enabled=False,
        max_pending_messages=5000,
        block_if_queue_full=True,
    )
    for _ in range(2 * holes):
        producer.send_async(BODY, lambda *_: None)
    producer.flush()
    ids = [consumer.receive(int(LIMIT_S * 1000)).message_id() for _ in range(2 * holes)]
    cpu = broker.cpu_s()
    for message_id in ids[::2]:
        consumer.acknowledge(message_id)
    _await_backlog(broker, path, holes)
    ack_us = (broker.cpu_s() - cpu) / holes * 1e6
    after_mib = broker.resident_mib()
    stored = _stored(broker, path)
    client.close()
    cpu, began = broker.cpu_s(), time.perf_counter()
    broker.ask("PUT", f"{path}/unload")
    _await_backlog(broker, path, holes)
    elapsed = time.perf_counter() - began
    print(
        f"{broker.name}: {holes:,} holes: acknowledgement {ack_us:.1f} us of CPU, resident {before_mib:.0f} ->"
        f" {after_mib:.0f} MiB, stored {stored}, recovery {elapsed:.2f} s with {broker.cpu_s() - cpu:.2f} s of CPU",
        flush=True,
    )
    broker.ask("DELETE", f"{path}?force=true")


def _await_backlog(broker: Process, path: str, wanted: int) -> None:
    """Returns when the subscription has so many unacknowledged messages."""
    end, found = time.monotonic() + LIMIT_S, -1
    while time.monotonic() < end:
        try:
            subscriptions = json.loads(broker.ask("GET", f"{path}/stats"))["subscriptions"]
            found = subscriptions["s"]["msgBacklog"] if "s" in subscriptions else -1
        except (
            urllib.error.HTTPError
        ):  # The topic is not loaded: the request for its internal statistics loads it.
            broker.ask("GET", f"{path}/internalStats")
        if found == wanted:
            return
        time.sleep(0.02)
    raise TimeoutError(f"{broker.name}: the backlog is {found}, wanted are {wanted}")


def _stored(broker: Process, path: str) -> str:
    """Returns what the broker tells of the stored holes."""
    cursor = json.loads(broker.ask("GET", f"{path}/internalStats"))["cursors"]["s"]
    kept = {
        key: cursor[key]
        for key in cursor
        if "individuallyDeleted" in key and not isinstance(cursor[key], str)
    }
    kept["text"] = len(cursor.get("individuallyDeletedMessages", ""))
    return json.dumps(kept)


def main() -> None:
    """Measures the brokers in turn."""
    parser = argparse.ArgumentParser("python -m bench.holes_beside", description=__doc__, allow_abbrev=False)
    parser.add_argument("--broker", action="append", required=True, metavar="NAME=PULSAR_URL,ADMIN_URL,PID")
    parser.add_argument("--holes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    brokers = []
    for text in arguments.broker:
        name, _, rest = text.partition("=")
        service_url, admin_url, pid = rest.split(",")
        brokers.append(Process(name, service_url, admin_url, int(pid)))
    for _ in range(arguments.rounds):
        for broker in brokers:
            measure(broker, arguments.holes)
    print("load average " + " ".join(f"{value:.1f}" for value in os.getloadavg()))


if __name__ == "__main__":
    main()
