"""Seeks by time in a long topic: entries that each of them reads, and its time.

`python -m bench.time_seek [--entries 10000000] [--seeks 200]`, some minutes and 300 bytes of disk for each entry

Publishes entries of 100 bytes into one topic of a broker with the embedded store, in ledgers of 50,000 entries, and seeks a
subscription to random times between the first and the last one, each the broker timestamp of an entry (PIP-70).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.many_topics import embedded_broker
from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import parse_topic_name

RUN: Final = 500
"""Entries that are published together."""
IN_FLIGHT: Final = 20_000
BODY: Final = bytes(100)
PER_LEDGER: Final = 50_000
SETTINGS: Final = (
    f"managedLedgerMaxEntriesPerLedger={PER_LEDGER}",
    "managedLedgerMinLedgerRolloverTimeMinutes=0",
    "defaultRetentionTimeInMinutes=-1",
    "defaultRetentionSizeInMB=-1",
)


class Port(SinglePort):
    """Counts what is stored."""

    def __init__(self) -> None:
        self.done = 0

    def at_once(self, sends: object, count: int, error: BrokerError | None) -> None:
        """Fails: nothing is refused here."""
        raise AssertionError(error)

    def stored(self, sends: object, count: int, ledger_id: int, entry_id: int) -> None:
        """Counts them."""
        self.done += count

    def not_stored(self, sends: object, count: int, error: BrokerError) -> None:
        """Fails: everything is stored here."""
        raise AssertionError(error)

    def pause(self) -> None:
        """Fails: no rate is limited here."""
        raise AssertionError

    def go_on(self) -> None:
        """Fails: nothing was paused."""
        raise AssertionError

    def ready(self, topic_epoch: int | None) -> None:
        """Fails: the producer does not wait for access."""
        raise AssertionError

    def failed(self, error: BrokerError) -> None:
        """Fails: likewise."""
        raise AssertionError(error)

    def closed_by_broker(self) -> None:
        """Ignores the end of the topic."""
        return


async def fill(topic: PersistentTopic, entries: int) -> None:
    """Publishes so many entries."""
    port = Port()
    producer = Producer(topic, port, producer_id=1, name="bench")
    await topic.add_producer(producer)
    for sent in range(0, entries, RUN):
        producer.publish(sent, 0, 1, [BODY] * RUN, RUN * len(BODY), chunk=False, delayed=False)
        while sent + RUN - port.done > IN_FLIGHT:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    while port.done < entries:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.001)
    await topic.remove_producer(producer)


async def main(entries: int, seeks: int, folder: Path) -> None:
    """Fills the topic, seeks, and prints."""
    async with embedded_broker(folder, *SETTINGS) as broker:
        topic = await broker.registry.get(parse_topic_name("persistent://public/default/long"), create=True)
        assert isinstance(topic, PersistentTopic)
        await topic.subscribing.create("subscription", EARLIEST)
        subscription = topic.subscriptions["subscription"]
        began, began_ms = time.perf_counter(), topic.ledger.environment.wall_ms()
        await fill(topic, entries)
        ended_ms = topic.ledger.environment.wall_ms()
        ledgers = topic.ledger.ledgers
        print(f"{ledgers.entries:,} entries in {len(ledgers)} ledgers, {time.perf_counter() - began:.0f} s")
        searches, reads, times = topic.ledger.environment.time_searches, [], []
        for _ in range(seeks):
            sought_ms = random.randint(began_ms, ended_ms)
            before, begins = searches.reads, time.perf_counter()
            found = await topic.positions.first_since(sought_ms)
            await subscription.seek(found)
            times.append((time.perf_counter() - begins) * 1000)
            reads.append(searches.reads - before)
            await check(topic, found, sought_ms)
        reads.sort()
        times.sort()
        last = seeks * 99 // 100
        print(f"reads of a seek: {reads[seeks // 2]} (median), {reads[-1]} at most")
        print(f"time of a seek: {times[seeks // 2]:.2f} ms (median), {times[last]:.2f} ms (99 %)")


async def check(topic: PersistentTopic, found: Position, sought_ms: int) -> None:
    """Raises AssertionError unless the entry is the first one that is not older."""
    at = topic.positions.time_of
    before = topic.ledger.ledgers.previous(found)
    if topic.ledger.ledgers.has_entry(*found):
        stored_ms = await at(found)
        assert stored_ms is not None
        assert stored_ms >= sought_ms, (found, sought_ms)
    if topic.ledger.ledgers.has_entry(*before):
        stored_ms = await at(before)
        assert stored_ms is not None
        assert stored_ms < sought_ms, (before, sought_ms)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Seeks by time in a long topic.")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--seeks", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(given.entries, given.seeks, Path(name)))
