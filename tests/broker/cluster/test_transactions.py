"""Transactions whose coordinator, topics and subscriptions have different brokers of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.admin.cluster.transaction_stats import transaction_metadata
from broker.cluster.ownership import ClusterOwnership
from broker.cluster.transactions import open_transaction
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.topics.new_topic import create_shadow
from broker.service.transactions.coordinator import Coordinator
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from broker.service.transactions.transaction_states import (
    Begun,
    PartitionsAdded,
    StatusChanged,
    Subscribed,
    SubscriptionsAdded,
    Transaction,
    TxnStatus,
    apply,
)
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.errors import ServiceNotReady
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.pulsar_api_pb2 import ServerError
from tests.support.command_json import Json
from tests.support.memory_broker import broker_with
from tests.support.mover import TARGET, Mover
from tests.support.raw_client import RawConnection

SOURCE = "persistent://public/default/source-2"
"""In another bundle than the target."""
SHADOW = "persistent://public/default/shadow-0"
"""In the bundle of the source."""
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
    while not condition():  # noqa: ASYNC110 - state without an event
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
        # The next read shows the message, or that it was left out.
        await clients.target.publish(1, b"later")
        seen = [(await clients.target.message())[2]]
        if action == "COMMIT":
            assert seen == [b"moved"]
            assert await clients.source.cnx.quiet(0.2) is None
        else:
            assert seen == [b"later"]
            assert (await clients.source.message())[2] == b"moved"


class Unreachable:
    """Participants that cannot be told."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def prepare_topic(self, topic: str) -> None: ...

    async def end_on_topic(self, topic: str, txn: TxnId, *, commit: bool) -> None:
        self.asked.set()
        raise ServiceNotReady(f"{topic} does not answer")

    async def end_on_subscription(self, subscribed: Subscribed, txn: TxnId, *, commit: bool) -> None:
        raise AssertionError("topics are told first")


async def test_decided_end_goes_on_at_the_next_owner_of_the_coordinator() -> None:
    async with spread() as (found, clients):
        first = found[0]
        txn = await move_one(clients, b"moved")
        assert first.coordinators is not None
        former = first.coordinators.at(COORDINATOR)
        former._participants = nobody = Unreachable()
        clients.coordinator.cnx.send("END_TXN", request_id=77, txn_action="COMMIT", **txn)
        await nobody.asked.wait()
        # The end is decided, and nobody has heard of it.
        await ownership_of(first).unload(bundle_of_coordinator(first), found[1].addresses.broker_id)
        answer = (await clients.coordinator.hear("END_TXN_RESPONSE")).command.endTxnResponse
        assert answer.error == ServerError.TransactionCoordinatorNotFound
        await opened_again(found, former)
        assert (await clients.target.message())[2] == b"moved"
        await until(lambda: not coordinator_of(found).transactions)
        assert await clients.source.cnx.quiet(0.2) is None


async def test_message_of_a_transaction_whose_end_is_decided_is_refused_at_a_broker_that_has_not_heard() -> (
    None
):
    async with spread() as (found, clients):
        txn = await clients.coordinator.begin(LONG_MS)
        coordinator = coordinator_of(found)
        coordinator._participants = nobody = Unreachable()
        clients.coordinator.cnx.send("END_TXN", request_id=77, txn_action="COMMIT", **txn)
        await nobody.asked.wait()
        assert "is not open" in await refusal_of_send(clients.target, txn)


def bundle_of_coordinator(service: BrokerService) -> str:
    return ownership_of(service).bundle_of(ASSIGN_TOPIC.with_partition(COORDINATOR))


def open_at(found: list[BrokerService]) -> list[Coordinator]:
    known = [service.coordinators for service in found if service.coordinators is not None]
    return [one.by_number[COORDINATOR] for one in known if COORDINATOR in one.by_number]


def coordinator_of(found: list[BrokerService]) -> Coordinator:
    (coordinator,) = open_at(found)
    return coordinator


async def opened_again(found: list[BrokerService], former: Coordinator) -> None:
    """Returns once another owner of the coordinator has opened it, whichever that is."""
    while former in (now := open_at(found)) or not now:
        for service in found:
            assert service.coordinators is not None
            await service.coordinators.keep_open()
        await asyncio.sleep(0)


async def test_topic_that_moves_keeps_a_transaction_open_and_takes_its_end() -> None:
    async with spread() as (found, clients):
        _, second, third = found
        txn = await move_one(clients, b"before")
        name = parse_topic_name(TARGET)
        await ownership_of(second).unload(
            ownership_of(second).bundle_of(name), ownership_of(third).owner.broker_id
        )
        await give(third, name)
        moved = await client(third)
        await moved.ask("PRODUCER", "PRODUCER_SUCCESS", topic=TARGET, producer_id=1)
        await moved.subscribe(TARGET, 2, "reader")
        await moved.publish(1, b"after", txn)
        assert await moved.cnx.quiet(0.2) is None
        answer = await clients.coordinator.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **txn)
        assert not answer.command.endTxnResponse.HasField("error"), answer.command
        assert [(await moved.message())[2] for _ in range(2)] == [b"before", b"after"]
        await moved.cnx.close()


def test_answer_about_a_transaction_says_all_that_its_topics_need() -> None:
    txn, known = TxnId(COORDINATOR, 7), dict[TxnId, Transaction]()
    changes = (
        Begun(timeout_ms=5000, started_ms=1, owner="alice"),
        PartitionsAdded((TARGET, "public/default/short")),
        SubscriptionsAdded(((SOURCE, "one"), (SOURCE, "two"), (TARGET, "one"))),
    )
    for change in changes:
        apply(known, txn, change, EARLIEST)
    before = known[txn]
    learnt = open_transaction(txn, transaction_metadata(before, {}))
    assert learnt is not None
    assert (learnt.owner, learnt.topics, learnt.subscriptions) == (
        "alice",
        before.topics,
        before.subscriptions,
    )
    for status in (TxnStatus.COMMITTING, TxnStatus.ABORTING):
        apply(known, txn, StatusChanged(status), EARLIEST)
        assert open_transaction(txn, transaction_metadata(before, {})) is None


async def refusal_of_send(mover: Mover, txn: dict[str, Json]) -> str:
    mover.send(1, b"refused", txn)
    return (await mover.hear("SEND_ERROR")).command.send_error.message


async def test_message_of_a_transaction_that_has_ended_is_refused_at_another_broker() -> None:
    async with spread() as (_, clients):
        txn = await move_one(clients, b"moved")
        await clients.coordinator.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **txn)
        assert "is not open" in await refusal_of_send(clients.target, txn)
        # It has hidden and held back nothing.
        await clients.target.publish(1, b"later")
        assert [(await clients.target.message())[2] for _ in range(2)] == [b"moved", b"later"]


async def test_message_of_a_transaction_that_has_not_named_the_topic_is_refused() -> None:
    async with spread() as (_, clients):
        txn = await move_one(clients, b"moved")
        await clients.source.ask("PRODUCER", "PRODUCER_SUCCESS", topic=SOURCE, producer_id=1)
        assert "add the topic to it first" in await refusal_of_send(clients.source, txn)
        unknown: dict[str, Json] = {"txnid_most_bits": COORDINATOR, "txnid_least_bits": 1000}
        assert "is not open" in await refusal_of_send(clients.target, unknown)


async def test_end_that_overtakes_the_answer_about_a_transaction_takes_it_back() -> None:
    async with spread() as (found, clients):
        _, second, _ = found
        named = await clients.coordinator.begin(LONG_MS)
        key = TxnId(COORDINATOR, int(str(named["txnid_least_bits"])))
        coordinators = second.coordinators
        assert coordinators is not None
        assert coordinators._cluster is not None
        real = coordinators._cluster.find

        async def find(txn: TxnId) -> Transaction | None:
            answer = await real(txn)
            assert answer is not None, "open when it was asked"
            await clients.coordinator.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **named)
            return answer

        coordinators._cluster.find = find  # type: ignore[method-assign]
        assert "is not open" in await refusal_of_send(clients.target, named)
        assert not coordinators.publishes(key, TARGET)


async def test_coordinator_is_open_at_its_owner_alone() -> None:
    async with spread() as (found, clients):
        assert [COORDINATOR in one.coordinators.by_number for one in found if one.coordinators] == [
            True,
            False,
            False,
        ]
        frame = await clients.target.ask(
            "TC_CLIENT_CONNECT_REQUEST", "TC_CLIENT_CONNECT_RESPONSE", tc_id=COORDINATOR
        )
        assert frame.command.tcClientConnectResponse.error == ServerError.ServiceNotReady


async def test_leader_has_a_broker_take_a_coordinator_that_nobody_owns() -> None:
    async with spread() as (found, clients):
        await clients.coordinator.begin(LONG_MS)
        former = coordinator_of(found)
        await ownership_of(found[0]).unload(bundle_of_coordinator(found[0]))
        await opened_again(found, former)
        assert coordinator_of(found).active == 1


@pytest.mark.parametrize("began_before", [True, False])
async def test_shadow_at_another_broker_hides_what_is_not_committed(*, began_before: bool) -> None:
    async with spread() as (found, clients):
        third = found[2]
        if began_before:
            txn = await move_one(clients, b"moved")
        await create_shadow(third.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TARGET})
        shadow = Mover(await RawConnection.open(third.addresses.service_url), SHADOW, TARGET)
        await shadow.cnx.connect()
        await shadow.subscribe(SHADOW, 2, "reader")
        if not began_before:
            txn = await move_one(clients, b"moved")
        await clients.target.publish(1, b"later")
        assert await shadow.cnx.quiet(0.5) is None, "a message came before the commit"
        await clients.coordinator.ask("END_TXN", "END_TXN_RESPONSE", txn_action="ABORT", **txn)
        assert (await shadow.message())[2] == b"later"
        await shadow.cnx.close()
