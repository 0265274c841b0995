"""How long does a changed policy take to reach its topic among thousands that have one?

`python -m bench.policy_changes [--topics N] [--changes N]`

A broker in memory, its admin port and one client of it share a process. Every topic is open and has a policy of its own.
The time is that from sending the request to the moment at which the topic obeys the new value.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.ledger_client.memory import MemoryLedgerClient
from broker.loop import clock
from broker.loop.turn import Turn
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.model.topic_name import parse_topic_name
from tests.fakes.ledgers import on_one_bookie

NAMESPACE = "persistent://public/default"
OVERRIDES = [
    "brokerServicePort=0",
    "webServicePort=0",
    "bindAddress=127.0.0.1",
    "advertisedAddress=127.0.0.1",
]


async def started() -> BrokerService:
    """Returns a broker that stores everything in memory."""
    loop = asyncio.get_running_loop()
    metadata = MemoryMetadataStore()
    broker = BrokerService(
        load_broker_settings(None, environ={}, overrides=OVERRIDES, profile=None),
        metadata=metadata,
        ledgers=on_one_bookie(metadata, MemoryLedgerClient(loop.call_soon)),
        turn=Turn(loop.call_soon, clock.monotonic_ns),
        version="bench",
    )
    await broker.start()
    await broker.start_admin()
    return broker


async def change_ms(broker: BrokerService, admin: ClientSession, topic: int, value: int) -> float:
    """Returns the milliseconds until the topic obeys the new limit."""
    opened = broker.registry.topics[f"{NAMESPACE}/t{topic}"]
    begun = time.perf_counter()
    path = f"/admin/v2/persistent/public/default/t{topic}/maxMessageSize"
    asked = asyncio.ensure_future(admin.post(path, json=value))
    # A topic has no event for this, and the loop is otherwise idle.
    while opened.message_bytes_max != value:  # noqa: ASYNC110
        await asyncio.sleep(0)
    taken = time.perf_counter() - begun
    (await asked).raise_for_status()
    return taken * 1000


async def measure(topics: int, changes: int) -> list[float]:
    """Returns the sorted milliseconds of all changes."""
    broker = await started()
    for number in range(topics):
        name = f"{NAMESPACE}/t{number}"
        await broker.registry.get(parse_topic_name(name), create=True)
        await broker.namespaces.set_topic_policy(name, "maxMessageSize", 1)
    async with ClientSession(base_url=broker.addresses.admin_url) as admin:
        taken = [
            await change_ms(broker, admin, number * (topics // changes), 1000 + number)
            for number in range(changes)
        ]
    await broker.stop()
    return sorted(taken)


def main() -> None:
    """Prints the median, the 99th percentile and the longest change."""
    parser = argparse.ArgumentParser("python -m bench.policy_changes")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    taken = asyncio.run(measure(options.topics, options.changes))
    shares = {"median": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100], "longest": taken[-1]}
    print(
        f"{options.topics} topics: " + ", ".join(f"{name} {value:.1f} ms" for name, value in shares.items())
    )


if __name__ == "__main__":
    main()
