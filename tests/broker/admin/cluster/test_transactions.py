"""Requests about transactions, and their metrics. The answers were compared with Apache Pulsar 4.2.4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.net.slices import IDS_PER_SLICE
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from foundation.model.topic_name import parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.pulsar_api_pb2 import MessageMetadata, ServerError
from tests.support.certificates import Certificates
from tests.support.command_json import Json
from tests.support.memory_broker import memory_broker
from tests.support.mover import SOURCE, TARGET, Mover
from tests.support.raw_client import build_command, payload_frame

ROOT = "/admin/v3/transactions"
OF_SOURCE, OF_TARGET = "public/default/source", "public/default/target"


@pytest.fixture
def more_settings() -> list[str]:
    return ["transactionCoordinatorEnabled=true", "acknowledgmentAtBatchIndexLevelEnabled=true"]


@pytest.fixture
async def mover(broker: BrokerService) -> AsyncIterator[Mover]:
    mover = await Mover.open(broker.addresses.service_url)
    yield mover
    await mover.cnx.close()


async def get(admin: ClientSession, path: str) -> tuple[int, Any]:
    async with admin.get(f"{ROOT}/{path}") as answer:
        return answer.status, await answer.json(content_type=None)


async def post(admin: ClientSession, path: str, body: str = "") -> int:
    async with admin.post(f"{ROOT}/{path}", data=body) as answer:
        return answer.status


async def open_transaction(mover: Mover, timeout_ms: int = 60_000) -> str:
    """A transaction that has published one message and acknowledged one; returns its id as in a path."""
    await mover.publish(2, b"m")
    _, position, _ = await mover.message()
    txn = await mover.begin(timeout_ms)
    await mover.publish(1, b"x", txn)
    await mover.acknowledge(position, txn)
    return f"{txn['txnid_most_bits']}/{txn['txnid_least_bits']}"


def start_of(broker: BrokerService) -> str:
    """Position of the first entry of the target."""
    topic: Any = broker.registry.topics[str(parse_topic_name(TARGET))]
    return f"{topic.ledger.ledgers.first().ledger_id}:0"


async def test_coordinators_that_nobody_runs_are_listed_with_the_brokers_that_take_them() -> None:
    store = MemoryMetadataStore()
    second = store.another()
    async with (
        memory_broker("transactionCoordinatorEnabled=true", metadata=store) as leader,
        memory_broker("transactionCoordinatorEnabled=true", metadata=second) as other,
        ClientSession() as session,
    ):
        listed = []
        for broker in (other, leader):
            async with session.get(f"{broker.addresses.admin_url}{ROOT}/coordinators") as answer:
                listed.append(await answer.json())
        assert listed[0] == listed[1]
        assert {one["brokerServiceUrl"] for one in listed[0]} == {
            leader.addresses.service_url,
            other.addresses.service_url,
        }
        ownership = other.registry.ownership
        for one in listed[0]:
            is_here = one["brokerServiceUrl"] == other.addresses.service_url
            bundle = ownership.bundle_of(ASSIGN_TOPIC.with_partition(one["id"]))
            assert (bundle in ownership.parts()) == is_here


@pytest.mark.parametrize(
    ("settings", "is_tls"),
    [((), False), (("brokerClientTlsEnabled=true",), True), (("brokerServicePort=",), True)],
)
async def test_coordinators_are_listed_with_the_url_that_brokers_use(
    tmp_path: Path, settings: tuple[str, ...], *, is_tls: bool
) -> None:
    made = Certificates(tmp_path)
    tls = (
        "brokerServicePortTls=0",
        "webServicePortTls=0",
        f"tlsCertificateFilePath={made.server}",
        f"tlsKeyFilePath={made.key(made.server)}",
        f"brokerClientTrustCertsFilePath={made.authority}",
    )
    async with (
        memory_broker("transactionCoordinatorEnabled=true", *tls, *settings) as broker,
        ClientSession(broker.addresses.admin_url) as admin,
    ):
        expected = broker.addresses.service_url_tls if is_tls else broker.addresses.service_url
        assert expected
        listed = (await get(admin, "coordinators"))[1]
        assert {one["brokerServiceUrl"] for one in listed} == {expected}


async def test_coordinators_are_listed_and_counted(
    broker: BrokerService, admin: ClientSession, mover: Mover
) -> None:
    status, listed = await get(admin, "coordinators")
    assert status == 200
    assert listed == [
        {"id": number, "brokerServiceUrl": broker.addresses.service_url} for number in range(16)
    ]
    await open_transaction(mover)
    status, stats = await get(admin, "coordinatorStats")
    assert (status, list(stats)) == (200, ["3"])
    assert stats["3"].pop("recoverEndTime") >= stats["3"].pop("recoverStartTime") > 0
    assert stats["3"] == {"state": "Ready", "leastSigBits": 0, "lowWaterMark": -1, "ongoingTxnSize": 1}
    assert (await get(admin, "coordinatorStats?coordinatorId=3"))[1]["ongoingTxnSize"] == 1
    refused = {"reason": "Transaction coordinator not found! coordinator id : 99"}
    assert await get(admin, "coordinatorStats?coordinatorId=99") == (404, refused)
    assert await get(admin, "coordinatorInternalStats/99") == (404, refused)
    log = (await get(admin, "coordinatorInternalStats/3"))[1]["transactionLogStats"]
    assert log["managedLedgerName"] == "pulsar/system/persistent/__transaction_log_3"
    # Begun, its topic, its subscription.
    assert log["managedLedgerInternalStats"]["numberOfEntries"] == 3


async def test_open_transaction_is_described(
    broker: BrokerService, admin: ClientSession, mover: Mover
) -> None:
    txn = await open_transaction(mover)
    start = start_of(broker)
    status, described = await get(admin, f"transactionMetadata/{txn}")
    assert status == 200
    assert described.pop("openTimestamp") > 0
    assert described == {
        "txnId": "(3,0)",
        "status": "OPEN",
        "timeoutAt": 60_000,
        "producedPartitions": {TARGET: {"startPosition": start, "aborted": False}},
        "ackedPartitions": {SOURCE: {"s": {}}},
    }
    in_buffer = {"startPosition": start, "aborted": False}
    assert await get(admin, f"transactionInBufferStats/{OF_TARGET}/{txn}") == (200, in_buffer)
    assert await get(admin, f"transactionInBufferStats/{OF_SOURCE}/{txn}") == (200, {"aborted": False})
    assert await get(admin, f"transactionInPendingAckStats/{OF_SOURCE}/s/{txn}") == (200, {})
    for timeout_ms, found in ((0, ["(3,0)"]), (59_999, ["(3,0)"]), (60_000, [])):
        status, slow = await get(admin, f"slowTransactions/{timeout_ms}")
        assert (status, list(slow)) == (200, found)
    assert (await get(admin, "slowTransactions/0?coordinatorId=99"))[0] == 404
    unknown = {"reason": "The transaction with this txdID `(3,9)`not found "}
    assert await get(admin, "transactionMetadata/3/9") == (404, unknown)
    assert await get(admin, "transactionMetadata/9/9") == (
        404,
        {"reason": "Transaction coordinator with id 9 not found!"},
    )


async def publish_many(mover: Mover, count: int) -> list[dict[str, Json]]:
    """Stores messages in the source and returns their positions."""
    command = {"producer_id": 2, "num_messages": 1}
    for number in range(count):
        sent = build_command("SEND", {**command, "sequence_id": 1000 + number})
        metadata = MessageMetadata(producer_name="p", sequence_id=1000 + number, publish_time=1)
        mover.cnx.send_bytes(payload_frame(sent, metadata, b"x"))
    mover.cnx.send("FLOW", consumer_id=1, messagePermits=count)
    return [(await mover.message())[1] for _ in range(count)]


async def test_long_acknowledgement_is_whole_or_refused(admin: ClientSession, mover: Mover) -> None:
    positions = await publish_many(mover, 2 * IDS_PER_SLICE + 500)
    first, second = await mover.begin(60_000), await mover.begin(60_000)

    async def acknowledge(txn: dict[str, Json], end: int | None = None) -> Any:
        ids: list[Json] = [*positions[:end]]
        answer = await mover.ask(
            "ACK", "ACK_RESPONSE", consumer_id=1, ack_type="Individual", message_id=ids, **txn
        )
        return answer.command.ackResponse

    async def state(place: int) -> str:
        path = "positionStatsInPendingAck/{}/s/{ledgerId}/{entryId}".format(OF_SOURCE, **positions[place])
        return str((await get(admin, path))[1]["state"])

    await mover.acknowledge(positions[-1], first)
    for txn in (second, first):
        assert (await acknowledge(txn)).error == ServerError.TransactionConflict
    assert [await state(place) for place in (0, IDS_PER_SLICE, -1)] == [
        *["NotInPendingAck"] * 2,
        "PendingAck",
    ]
    assert not (await acknowledge(first, -1)).HasField("error")
    assert {await state(place) for place in (0, IDS_PER_SLICE, -2)} == {"PendingAck"}
    answer = await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **first)
    assert not answer.command.endTxnResponse.HasField("error")
    assert {await state(place) for place in (0, IDS_PER_SLICE, -1)} == {"MarkDelete"}


async def test_names_are_shown_as_the_client_wrote_them(admin: ClientSession, mover: Mover) -> None:
    txn = await mover.begin(60_000)
    await mover.ask("ADD_PARTITION_TO_TXN", "ADD_PARTITION_TO_TXN_RESPONSE", partitions=["short"], **txn)
    await mover.ask(
        "ADD_SUBSCRIPTION_TO_TXN",
        "ADD_SUBSCRIPTION_TO_TXN_RESPONSE",
        subscription=[{"topic": "short", "subscription": "s"}],
        **txn,
    )
    _, described = await get(admin, "transactionMetadata/3/0")
    assert described["producedPartitions"].keys() == {TARGET, "short"}
    assert described["ackedPartitions"].keys() == {SOURCE, "short"}
    answer = await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **txn)
    assert not answer.command.endTxnResponse.HasField("error")


async def test_topic_and_subscription_show_their_transactions(admin: ClientSession, mover: Mover) -> None:
    assert (await get(admin, f"transactionBufferStats/{OF_TARGET}"))[1]["state"] == "NoSnapshot"
    assert (await get(admin, f"pendingAckStats/{OF_SOURCE}/s"))[1]["state"] == "None"
    reason = {"reason": "Pending ack have not init success!"}
    assert await get(admin, f"pendingAckInternalStats/{OF_SOURCE}/s") == (503, reason)
    txn = await open_transaction(mover)
    _, buffer = await get(admin, f"transactionBufferStats/{OF_TARGET}?lowWaterMarks=true")
    assert (buffer["state"], buffer["ongoingTxnSize"], buffer["lowWaterMarks"]) == ("Ready", 1, {"3": -1})
    assert buffer["maxReadPosition"].endswith(":-1")
    _, pending = await get(admin, f"pendingAckStats/{OF_SOURCE}/s?lowWaterMarks=true")
    assert (pending["state"], pending["ongoingTxnSize"], pending["lowWaterMarks"]) == ("Ready", 1, {"3": -1})
    for path, key, name in (
        (f"transactionBufferInternalStats/{OF_TARGET}", "singleSnapshotSystemTopicInternalStats", "target"),
        (f"pendingAckInternalStats/{OF_SOURCE}/s", "pendingAckLogStats", "source"),
    ):
        status, found = await get(admin, path)
        assert (status, found[key]["managedLedgerName"]) == (200, f"public/default/persistent/{name}")
        assert found[key]["managedLedgerInternalStats"]["ledgers"]
    assert await post(admin, f"abortTransaction/{txn}") == 204
    _, buffer = await get(admin, f"transactionBufferStats/{OF_TARGET}")
    assert (buffer["ongoingTxnSize"], buffer["totalAbortedTransactions"]) == (0, 1)
    assert await get(admin, f"transactionInBufferStats/{OF_TARGET}/{txn}") == (200, {"aborted": True})
    assert (await get(admin, f"transactionMetadata/{txn}"))[0] == 404


async def test_abort_of_a_role_needs_its_name_and_leaves_transactions_of_others(
    admin: ClientSession, mover: Mover
) -> None:
    txn = await open_transaction(mover)
    assert await post(admin, "abortTransactionsOfRole") == 400
    assert await post(admin, "abortTransactionsOfRole?role=mallory") == 200
    assert (await get(admin, f"transactionMetadata/{txn}"))[0] == 200


async def test_cumulative_acknowledgement_of_a_transaction_is_shown(
    admin: ClientSession, mover: Mover
) -> None:
    await mover.ask(
        "SUBSCRIBE",
        "SUCCESS",
        topic=SOURCE,
        subscription="up-to",
        subType="Exclusive",
        consumer_id=7,
        initialPosition="Earliest",
    )
    await mover.publish(2, b"m")
    _, position, _ = await mover.message()
    txn = await mover.begin(60_000, "up-to")
    await mover.acknowledge(position, txn, consumer_id=7, kind="Cumulative")
    where = f"{position['ledgerId']}:{position['entryId']}"
    path = f"transactionInPendingAckStats/{OF_SOURCE}/up-to/3/0"
    assert await get(admin, path) == (200, {"cumulativeAckPosition": where})


async def test_position_is_acknowledged_pending_or_neither(admin: ClientSession, mover: Mover) -> None:
    positions = []
    for number in range(3):
        await mover.publish(2, b"m%d" % number)
        positions.append((await mover.message())[1])
    await mover.publish(2, b"batch", batch=3)
    positions.append((await mover.message())[1])
    path = f"positionStatsInPendingAck/{OF_SOURCE}/s/{positions[0]['ledgerId']}"
    assert await get(admin, f"{path}/0") == (200, {"state": "PendingAckNotReady"})
    txn = await mover.begin(60_000)
    await mover.acknowledge(positions[0])
    await mover.acknowledge(positions[1], txn)
    await mover.acknowledge({**positions[3], "ack_set": [0b101], "batch_size": 3}, txn)
    for place, state in (
        ("0", "MarkDelete"),
        ("1", "PendingAck"),
        ("1?batchIndex=0", "InvalidPosition"),
        ("2", "NotInPendingAck"),
        ("99", "NotInPendingAck"),
        ("3", "PendingAck"),
        ("3?batchIndex=0", "NotInPendingAck"),
        ("3?batchIndex=1", "PendingAck"),
        ("3?batchIndex=3", "InvalidPosition"),
        ("3?batchIndex=-1", "InvalidPosition"),
    ):
        assert await get(admin, f"{path}/{place}") == (200, {"state": state}), place


async def test_missing_things_are_refused(admin: ClientSession, mover: Mover) -> None:
    missing = {"reason": "Topic persistent://public/default/none not found"}
    assert await get(admin, "transactionBufferStats/public/default/none") == (404, missing)
    assert (await get(admin, "pendingAckStats/public/default/none/s"))[0] == 404
    no_subscription = {"reason": f"{SOURCE} not found subscription : none"}
    for path in (
        f"pendingAckStats/{OF_SOURCE}/none",
        f"pendingAckInternalStats/{OF_SOURCE}/none",
        f"transactionInPendingAckStats/{OF_SOURCE}/none/0/0",
        f"positionStatsInPendingAck/{OF_SOURCE}/none/1/1",
    ):
        assert await get(admin, path) == (404, no_subscription)
    for path in ("3/9", "9/0"):
        assert await post(admin, f"abortTransaction/{path}") == 404
    for path in ("transactionMetadata/x/0", "slowTransactions/1_0", "coordinatorStats?coordinatorId=%D9%A3"):
        async with admin.get(f"{ROOT}/{path}") as answer:
            assert answer.status == 400
    assert await post(admin, f"abortTransaction/{'9' * 5000}/0") == 400


async def test_transaction_that_ends_cannot_be_aborted(
    broker: BrokerService, admin: ClientSession, mover: Mover
) -> None:
    txn = await open_transaction(mover)
    coordinators = broker.coordinators
    assert coordinators is not None
    coordinator = coordinators.at(3)
    ending = asyncio.create_task(coordinator.end(TxnId(3, 0), commit=True))
    while coordinator.transactions[TxnId(3, 0)].status.name == "OPEN":  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0)
    assert await post(admin, f"abortTransaction/{txn}") in (404, 409)
    await ending
    assert (await get(admin, f"transactionBufferStats/{OF_TARGET}"))[1]["totalAbortedTransactions"] == 0


async def test_number_of_coordinators_grows_only(admin: ClientSession, mover: Mover) -> None:
    path = "transactionCoordinator/replicas"
    for body, status in (("0", 406), ("-1", 406), ("16", 406), ("x", 400), ("", 400), ("100000", 406)):
        assert await post(admin, path, body) == status, body
    assert await post(admin, path, "17") == 204
    assert len((await get(admin, "coordinators"))[1]) == 17
    await mover.ask("TC_CLIENT_CONNECT_REQUEST", "TC_CLIENT_CONNECT_RESPONSE", tc_id=16)
    assert (await get(admin, "coordinatorStats?coordinatorId=16"))[1]["leastSigBits"] == -1


async def scraped(admin: ClientSession) -> dict[str, float]:
    async with admin.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("pulsar_txn"))
    return {series: float(value) for series, _, value in pairs}


async def test_metrics_count_transactions(broker: BrokerService, admin: ClientSession, mover: Mover) -> None:
    txns = [await open_transaction(mover) for _ in range(3)]
    await mover.ask(
        "END_TXN",
        "END_TXN_RESPONSE",
        txnid_most_bits=3,
        txnid_least_bits=0,
        txn_action="COMMIT",
    )
    assert await post(admin, f"abortTransaction/{txns[1]}") == 204
    values = await scraped(admin)
    of_coordinator = '{cluster="standalone",coordinator_id="3"}'
    for name, value in (("created", 3), ("committed", 1), ("aborted", 1), ("timeout", 0)):
        assert values[f"pulsar_txn_{name}_total{of_coordinator}"] == value
        assert values[f"pulsar_txn_{name}_count{of_coordinator}"] == value
    assert values[f"pulsar_txn_active_count{of_coordinator}"] == 1
    # Three times begun, named a topic and a subscription; two ends in two steps.
    assert values[f"pulsar_txn_append_log_total{of_coordinator}"] == 13
    ended = [value for name, value in values.items() if name.startswith("pulsar_txn_execution_latency_le_")]
    assert (len(ended), sum(ended)) == (14, 2)
    of_topic = f'{{cluster="standalone",namespace="public/default",topic="{TARGET}"}}'
    for name in ("active", "committed", "aborted"):
        assert values[f"pulsar_txn_tb_{name}_total{of_topic}"] == 1
    accept = "application/openmetrics-text; version=1.0.0"
    async with admin.get("/metrics", headers={"Accept": accept}) as answer:
        families = {one.name for one in text_string_to_metric_families(await answer.text())}  # type: ignore[no-untyped-call]
    assert {"pulsar_txn_created", "pulsar_txn_created_count", "pulsar_txn_tb_active_total"} <= families
