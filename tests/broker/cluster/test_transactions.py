"""Transactions whose coordinator, topics and subscriptions have different brokers of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.ownership import ClusterOwnership
from broker.compose.broker_service import BrokerService
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.support.command_json import Json
from tests.support.memory_broker import broker_with
from tests.support.mover import TARGET, Mover
from tests.support.raw_client import RawConnection

SOURCE = "persistent://public/default/source-2"
"""In another bundle than the target."""
COORDINATOR = 3
"""The one of `Mover`."""
LONG_MS = 60_000


def ownership_of(service: BrokerService) -> ClusterOwnership:
    found = service.registry.ownership
    assert isinstance(found, ClusterOwnership)
    return found


@asynccontextmanager
async def brokers(count: int, *overrides: str) -> AsyncIterator[list[BrokerService]]:
    """Brokers with transactions on one store and one bookie."""
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)
    bookie, store = MemoryLedgerClient(loop.call_soon), MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                broker_with(one, bookie, turn, "transactionCoordinatorEnabled=true", *overrides)
            )
            for one in (store, *(store.another() for _ in range(count - 1)))
        ]


async def give(to: BrokerService, name: TopicName) -> None:
    """Has a broker own a topic's bundle."""
    ownership = ownership_of(to)
    await ownership.owner_of(name, authoritative=True)
    assert ownership.bundle_of(name) in ownership.leases


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


class Clients:
    """A client at each of three brokers: coordinator, target and source."""

    def __init__(self, at_coordinator: Mover, at_target: Mover, at_source: Mover) -> None:
        self.coordinator, self.target, self.source = at_coordinator, at_target, at_source


async def client(service: BrokerService) -> Mover:
    mover = Mover(await RawConnection.open(service.addresses.service_url), SOURCE, TARGET)
    await mover.cnx.connect()
    return mover


@asynccontextmanager
async def spread() -> AsyncIterator[tuple[list[BrokerService], Clients]]:
    """The coordinator at the first broker, the target at the second, the source at the third."""
    async with brokers(3) as found:
        names = ASSIGN_TOPIC.with_partition(COORDINATOR), parse_topic_name(TARGET), parse_topic_name(SOURCE)
        for service, name in zip(found, names, strict=True):
            await give(service, name)
        clients = Clients(*[await client(service) for service in found])
        await clients.coordinator.ask(
            "TC_CLIENT_CONNECT_REQUEST", "TC_CLIENT_CONNECT_RESPONSE", tc_id=COORDINATOR
        )
        await clients.target.ask("PRODUCER", "PRODUCER_SUCCESS", topic=TARGET, producer_id=1)
        await clients.target.subscribe(TARGET, 2, "reader")
        await clients.source.ask("PRODUCER", "PRODUCER_SUCCESS", topic=SOURCE, producer_id=2)
        await clients.source.subscribe(SOURCE, 1)
        yield found, clients
        for one in (clients.coordinator, clients.target, clients.source):
            await one.cnx.close()


async def move_one(clients: Clients, payload: bytes) -> dict[str, Json]:
    """Moves a message in a transaction, which stays open."""
    await clients.source.publish(2, payload)
    _, position, found = await clients.source.message()
    assert found == payload
    txn = await clients.coordinator.begin(LONG_MS)
    await clients.target.publish(1, payload, txn)
    await clients.source.acknowledge(position, txn)
    return txn


@pytest.mark.parametrize("action", ["COMMIT", "ABORT"])
async def test_transaction_over_three_brokers_ends_at_all(action: str) -> None:
    async with spread() as (_, clients):
        txn = await move_one(clients, b"moved")
        assert await clients.target.cnx.quiet(0.2) is None, "a message came before the commit"
        answer = await clients.coordinator.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **txn)
        assert not answer.command.endTxnResponse.HasField("error"), answer.command
        # What follows shows the message, or that it was left out.
        await clients.target.publish(1, b"later")
        seen = [(await clients.target.message())[2]]
        if action == "COMMIT":
            assert seen == [b"moved"]
            assert await clients.source.cnx.quiet(0.2) is None
        else:
            assert seen == [b"later"]
            assert (await clients.source.message())[2] == b"moved"
