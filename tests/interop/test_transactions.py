"""Transactions across kill -9: messages move from one topic to another exactly once, whatever moment the broker dies in.

Each transaction acknowledges messages of the source and publishes them to the target. A raw client drives them, because
it can leave a transaction at any step; `test_other_clients.py` has the official clients.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from protocol.pulsar_api_pb2 import MessageMetadata, ServerError
from tests.support.command_json import Json
from tests.support.mover import SOURCE, TARGET, Mover
from tests.support.raw_client import RawConnection, build_command, payload_frame
from tests.support.tokens import SECRET_URL, token
from tests.vectors.broker_process import BrokerProcess

MESSAGES = 120
PER_ROUND = 10
SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    # Small, so that the rounds pass several snapshots and read entries behind them too.
    "transactionBufferSnapshotMaxTransactionCount": "7",
}
TIMEOUT_MS = 30_000
"""The broker may die before it has the END_TXN; readers then wait until the transaction is aborted."""
SHORT_MS = 10_000
VANISHED_MS = 12_000
"""Longer than it takes to begin all transactions on a busy machine."""


STEPS = ["published", "acknowledged", "commit sent", "commit sent later", "committed", "aborted"]


async def move_some(url: str, step: str) -> None:
    """Moves ten messages in a transaction and stops behind the step."""
    mover = await Mover.open(url)
    taken = [await mover.message() for _ in range(PER_ROUND)]
    # After the messages have come: its time is short, and a busy machine may need long for the first of them.
    txn = await mover.begin(SHORT_MS if step in ("published", "acknowledged") else TIMEOUT_MS)
    # Side by side: on a slow disk the transaction would time out between ten syncs in a row.
    for _, _, payload in taken:
        mover.send(1, payload, txn)
    for _ in taken:
        await mover.hear("SEND_RECEIPT")
    if step == "published":
        return
    await mover.acknowledge_all([position for _, position, _ in taken], txn)
    if step == "acknowledged":
        return
    if step in ("committed", "aborted"):
        action = "COMMIT" if step == "committed" else "ABORT"
        answer = await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **txn)
        assert not answer.command.endTxnResponse.HasField("error")
        return
    mover.cnx.send("END_TXN", request_id=10_000, txn_action="COMMIT", **txn)
    await mover.cnx.drain()
    if step == "commit sent later":
        # Not a wait for anything: the broker shall die at another moment than right away.
        await asyncio.sleep(0.004)


async def test_messages_move_exactly_once_across_kills(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    mover = await Mover.open(broker.addresses.pulsar)
    # Before the first message: without a subscription the target's ledgers would be trimmed.
    await mover.subscribe(TARGET, 2, "reader")
    for number in range(MESSAGES):
        await mover.publish(2, b"%d" % number, {})
    await mover.cnx.close()
    try:
        for step in STEPS + STEPS[2:4] * 2:
            await move_some(broker.addresses.pulsar, step)
            broker.kill()
            broker.start()
        moved = await move_the_rest(broker.addresses.pulsar)
    finally:
        broker.kill()
    assert sorted(moved) == list(range(MESSAGES))


async def move_the_rest(url: str) -> list[int]:
    """Moves what is left outside of transactions; returns everything that the target has."""
    mover = await Mover.open(url)
    await mover.subscribe(TARGET, 2, "reader")
    found: list[int] = []
    while len(found) < MESSAGES:
        consumer_id, position, payload = await mover.message()
        if consumer_id == 2:
            found.append(int(payload))
        else:
            await mover.publish(1, payload, {})
            await mover.acknowledge(position, {})
    extra = await mover.cnx.quiet(0.3)
    twins = sorted(number for number in set(found) if found.count(number) > 1)
    assert not mover.waiting, f"these came twice: {twins}"
    assert extra is None, extra
    await mover.cnx.close()
    return found


async def test_acknowledgements_of_open_transactions_survive_a_kill(tmp_path: Path) -> None:
    """Committed after it they stay, also over the next kill; aborted, the message comes again."""
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        mover = await Mover.open(broker.addresses.pulsar)
        ends = {}
        for action in ("COMMIT", "ABORT"):
            await mover.publish(2, action.encode())
            ends[action] = await mover.begin(VANISHED_MS * 5)
            _, position, _ = await mover.message()
            await mover.acknowledge(position, ends[action])
        await restart(broker, mover)
        mover = await Mover.open(broker.addresses.pulsar)
        await mover.publish(2, b"later")
        assert (await mover.message())[2] == b"later", "a message came that a transaction has acknowledged"
        for action, txn in ends.items():
            answer = await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **txn)
            assert not answer.command.endTxnResponse.HasField("error")
        assert (await mover.message())[2] == b"ABORT"
        await restart(broker, mover)
        mover = await Mover.open(broker.addresses.pulsar)
        assert [(await mover.message())[2] for _ in range(2)] == [b"ABORT", b"later"]
        assert await mover.cnx.quiet(0.3) is None
        await mover.cnx.close()


async def restart(broker: BrokerProcess, mover: Mover) -> None:
    await mover.cnx.close()
    broker.kill()
    broker.start()


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_transactions_of_a_client_that_vanishes_are_aborted(tmp_path: Path, count: int) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        mover = await Mover.open(broker.addresses.pulsar)
        await mover.subscribe(TARGET, 2, "reader")
        # The first one has a message, which holds back the reader until its time is over.
        txn = await mover.begin(VANISHED_MS)
        await mover.publish(1, b"never seen", txn)
        await mover.publish(1, b"behind it")
        for number in range(count - 1):
            mover.cnx.send("NEW_TXN", request_id=1_000_000 + number, tc_id=3, txn_ttl_seconds=VANISHED_MS)
        for _ in range(count - 1):
            await mover.hear("NEW_TXN_RESPONSE")
        assert not mover.waiting
        await mover.cnx.close()
        async with ClientSession(base_url=broker.addresses.admin) as admin, asyncio.timeout(60):
            while await _open_transactions(admin):  # noqa: ASYNC110 - the broker tells nobody of time-outs
                await asyncio.sleep(0.1)
        reader = await Mover.open(broker.addresses.pulsar)
        await reader.subscribe(TARGET, 2, "reader")
        assert (await reader.message())[2] == b"behind it"
        # Numbers go on where they were.
        assert (await reader.begin(VANISHED_MS))["txnid_least_bits"] == count
        await reader.cnx.close()


async def _open_transactions(admin: ClientSession) -> int:
    async with admin.get("/admin/v3/transactions/coordinatorStats?coordinatorId=3") as answer:
        return int((await answer.json())["ongoingTxnSize"])


@pytest.mark.parametrize("setting", ["true", "false"])
async def test_requests_are_refused_while_transactions_are_off(tmp_path: Path, setting: str) -> None:
    with BrokerProcess(tmp_path, {"transactionCoordinatorEnabled": setting}, memory=True) as broker:
        cnx = await RawConnection.open(broker.addresses.pulsar)
        await cnx.connect()
        cnx.send("TC_CLIENT_CONNECT_REQUEST", request_id=1, tc_id=0)
        answer = await cnx.receive("TC_CLIENT_CONNECT_RESPONSE" if setting == "true" else "ERROR")
        if setting == "false":
            assert answer.command.error.message == "Transactions are not enabled."
        await cnx.close()


GUARDED = {
    **SETTINGS,
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": SECRET_URL,
    "authorizationEnabled": "true",
    "superUserRoles": "admin",
}
GUARDED_MS = 600_000
"""Longer than the test."""
NO_LOOKUP = pytest.mark.one_broker("a raw client may not look up the coordinator that it uses")


async def _grant(broker: BrokerProcess, role: str, to: str = "namespaces/public/default") -> None:
    headers = {"Authorization": f"Bearer {token({'sub': 'admin'})}"}
    path = f"/admin/v2/{to}/permissions/{role}"
    async with (
        ClientSession(base_url=broker.addresses.admin, headers=headers) as admin,
        admin.post(path, json=["produce", "consume"]) as answer,
    ):
        assert answer.status == 204


async def _errors_of_foreign_role(mover: Mover, txn: dict[str, Json], position: dict[str, Json]) -> list[int]:
    """Tries everything that a client may do with a transaction, commit and abort last; returns the errors."""
    named: list[tuple[str, str, dict[str, Json]]] = [
        ("ADD_PARTITION_TO_TXN", "addPartitionToTxnResponse", {"partitions": [SOURCE]}),
        (
            "ADD_SUBSCRIPTION_TO_TXN",
            "addSubscriptionToTxnResponse",
            {"subscription": [{"topic": TARGET, "subscription": "s"}]},
        ),
        ("ACK", "ackResponse", {"consumer_id": 1, "ack_type": "Individual", "message_id": [position]}),
        ("END_TXN", "endTxnResponse", {"txn_action": "COMMIT"}),
        ("END_TXN", "endTxnResponse", {"txn_action": "ABORT"}),
    ]
    send = build_command("SEND", {"producer_id": 1, "sequence_id": 99, **txn})
    metadata = MessageMetadata(producer_name="p", sequence_id=99, publish_time=1)
    mover.cnx.send_bytes(payload_frame(send, metadata, b"forged"))
    errors: list[int] = [(await mover.hear("SEND_ERROR")).command.send_error.error]
    for kind, field, fields in named:
        answer = await mover.ask(kind, f"{kind}_RESPONSE", **txn, **fields)
        part = getattr(answer.command, field)
        errors.append(part.error if part.HasField("error") else -1)
    return errors


@NO_LOOKUP
async def test_transaction_obeys_the_role_that_began_it_alone_also_after_a_kill(tmp_path: Path) -> None:
    refused = [ServerError.NotAllowedError] + [ServerError.TransactionNotFound] * 5
    with BrokerProcess(tmp_path, GUARDED) as broker:
        for role in ("alice", "mallory"):
            await _grant(broker, role)
        alice = await Mover.open(broker.addresses.pulsar, token=token({"sub": "alice"}))
        await alice.subscribe(TARGET, 2, "reader")
        await alice.publish(2, b"taken")
        _, position, _ = await alice.message()
        txn = await alice.begin(GUARDED_MS)
        await alice.publish(1, b"moved", txn)
        mallory = await Mover.open(broker.addresses.pulsar, token=token({"sub": "mallory"}))
        assert await _errors_of_foreign_role(mallory, txn, position) == refused
        broker.kill()
        broker.start()
        mallory = await Mover.open(broker.addresses.pulsar, token=token({"sub": "mallory"}))
        assert await _errors_of_foreign_role(mallory, txn, position) == refused
        await mallory.cnx.close()
        alice = await Mover.open(broker.addresses.pulsar, token=token({"sub": "alice"}))
        await alice.subscribe(TARGET, 2, "reader")
        await alice.acknowledge(position, txn)
        ended = await alice.ask("END_TXN", "END_TXN_RESPONSE", txn_action="COMMIT", **txn)
        assert not ended.command.endTxnResponse.HasField("error")
        while (message := await alice.message())[0] != 2:
            pass
        assert message[2] == b"moved"
        # A superuser may end the transaction of another role.
        txn = await alice.begin(GUARDED_MS)
        admin = await Mover.open(broker.addresses.pulsar, token=token({"sub": "admin"}))
        ended = await admin.ask("END_TXN", "END_TXN_RESPONSE", txn_action="ABORT", **txn)
        assert not ended.command.endTxnResponse.HasField("error")
        for mover in (alice, admin):
            await mover.cnx.close()


@NO_LOOKUP
async def test_role_without_a_right_cannot_use_up_the_coordinators(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, GUARDED) as broker:
        cnx = await RawConnection.open(broker.addresses.pulsar)
        await cnx.connect(token=token({"sub": "mallory"}))
        for number in (*range(16, 272), 2**64 - 1, 0, 15):
            cnx.send("TC_CLIENT_CONNECT_REQUEST", request_id=1, tc_id=number)
            answer = (await cnx.receive("TC_CLIENT_CONNECT_RESPONSE")).command.tcClientConnectResponse
            expected = ServerError.UnknownError if number < 16 else ServerError.TransactionCoordinatorNotFound
            assert (answer.error, answer.HasField("error")) == (expected, number >= 16)
        await cnx.close()


COORDINATORS = "persistent/pulsar/system/transaction_coordinator_assign"


@NO_LOOKUP
async def test_role_without_a_right_begins_transactions_up_to_its_limit_and_adds_nothing(
    tmp_path: Path,
) -> None:
    """As in Apache Pulsar 4.2.4, NEW_TXN needs no right; topics and subscriptions need theirs here, unlike there."""
    with BrokerProcess(tmp_path, GUARDED | {"maxActiveTransactionsPerRole": "2"}) as broker:
        await _grant(broker, "alice", COORDINATORS)
        mallory, alice = [await RawConnection.open(broker.addresses.pulsar) for _ in range(2)]
        looked_up = []
        for cnx, role in ((mallory, "mallory"), (alice, "alice")):
            await cnx.connect(token=token({"sub": role}))
            # Clients of 4.x do this first.
            cnx.send("LOOKUP", request_id=1, topic=f"{COORDINATORS.replace('/', '://', 1)}-partition-0")
            looked_up.append((await cnx.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse)
            cnx.send("TC_CLIENT_CONNECT_REQUEST", request_id=2, tc_id=0)
            connected = (await cnx.receive("TC_CLIENT_CONNECT_RESPONSE")).command.tcClientConnectResponse
            assert not connected.HasField("error")
        assert [one.error for one in looked_up] == [ServerError.AuthorizationError, ServerError.UnknownError]
        assert [one.HasField("error") for one in looked_up] == [True, False]
        reasons = []
        for cnx in (mallory, mallory, mallory, alice):
            cnx.send("NEW_TXN", request_id=3, tc_id=0, txn_ttl_seconds=GUARDED_MS)
            reasons.append((await cnx.receive("NEW_TXN_RESPONSE")).command.newTxnResponse.message)
        assert [bool(reason) for reason in reasons] == [False, False, True, False]
        assert "maxActiveTransactionsPerRole" in reasons[2]
        subscribed: dict[str, Json] = {"topic": TARGET, "subscription": "s"}
        asked: list[tuple[str, str, dict[str, Json]]] = [
            ("ADD_PARTITION_TO_TXN", "addPartitionToTxnResponse", {"partitions": [TARGET]}),
            ("ADD_SUBSCRIPTION_TO_TXN", "addSubscriptionToTxnResponse", {"subscription": [subscribed]}),
            ("END_TXN_ON_PARTITION", "endTxnOnPartitionResponse", {"topic": TARGET, "txn_action": "ABORT"}),
            (
                "END_TXN_ON_SUBSCRIPTION",
                "endTxnOnSubscriptionResponse",
                {"subscription": subscribed, "txn_action": "ABORT"},
            ),
        ]
        for kind, field, fields in asked:
            mallory.send(kind, request_id=4, txnid_most_bits=0, txnid_least_bits=0, **fields)
            answer = (await mallory.receive(f"{kind}_RESPONSE")).command
            assert getattr(answer, field).error == ServerError.AuthorizationError, kind
        for cnx in (mallory, alice):
            await cnx.close()
