"""Every command of the table, sent over TCP by a role without rights to a broker that asks for tokens.

Rule of this file: commands come from `ROWS`, so a new one fails here until it has a request below and its row has a right,
or `WITHOUT_A_RIGHT` names it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from broker.net.command_table import ROWS
from broker.net.rights import NoRight, OwnTransaction
from protocol.pulsar_api_pb2 import BaseCommand
from tests.support.command_json import Json
from tests.support.raw_client import PeerClosedError, RawConnection
from tests.support.tokens import SECRET_URL, token
from tests.vectors.broker_process import BrokerProcess

SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": SECRET_URL,
    "authorizationEnabled": "true",
    "superUserRoles": "admin",
    "transactionCoordinatorEnabled": "true",
}
NAMESPACE: Final = "public/default"
TOPIC: Final = f"persistent://{NAMESPACE}/secret"

R: Final[dict[str, Json]] = {"request_id": 9}
C: Final[dict[str, Json]] = {"consumer_id": 7}
P: Final[dict[str, Json]] = {"producer_id": 7}
TC: Final[dict[str, Json]] = {"tc_id": 0}
SCHEMA: Final[dict[str, Json]] = {"name": "", "schema_data": "", "type": "String"}
SUBSCRIBED: Final[dict[str, Json]] = {"topic": TOPIC, "subscription": "s"}
REQUESTS: Final[Mapping[str, dict[str, Json]]] = {
    "CONNECT": {"client_version": "raw"},
    "PING": {},
    "PONG": {},
    "AUTH_RESPONSE": {},
    "PARTITIONED_METADATA": {**R, "topic": TOPIC},
    "LOOKUP": {**R, "topic": TOPIC},
    "GET_TOPICS_OF_NAMESPACE": {**R, "namespace": NAMESPACE},
    "WATCH_TOPIC_LIST": {**R, "watcher_id": 1, "namespace": NAMESPACE, "topics_pattern": f"{TOPIC}.*"},
    "WATCH_TOPIC_LIST_CLOSE": {**R, "watcher_id": 1},
    "PRODUCER": {**R, **P, "topic": TOPIC},
    "SEND": {**P, "sequence_id": 0},
    "CLOSE_PRODUCER": {**R, **P},
    "SUBSCRIBE": {**R, **C, **SUBSCRIBED, "subType": "Shared"},
    "FLOW": {**C, "messagePermits": 1},
    "ACK": {**C, "ack_type": "Individual", "message_id": [{"ledgerId": 0, "entryId": 0}]},
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": C,
    "UNSUBSCRIBE": {**R, **C},
    "CLOSE_CONSUMER": {**R, **C},
    "SEEK": {**R, **C, "message_publish_time": 0},
    "GET_LAST_MESSAGE_ID": {**R, **C},
    "CONSUMER_STATS": {**R, **C},
    "GET_SCHEMA": {**R, "topic": TOPIC},
    "GET_OR_CREATE_SCHEMA": {**R, "topic": TOPIC, "schema": SCHEMA},
    "SCALABLE_TOPIC_LOOKUP": {"session_id": 9, "topic": TOPIC},
    "SCALABLE_TOPIC_CLOSE": {"session_id": 9},
    "SCALABLE_TOPIC_SUBSCRIBE": {**R, **C, **SUBSCRIBED, "consumer_name": "c", "consumer_type": "STREAM"},
    "SCALABLE_TOPIC_UNSUBSCRIBE": {**R, **C},
    "WATCH_SCALABLE_TOPICS": {"watch_id": 9, "namespace": NAMESPACE},
    "WATCH_SCALABLE_TOPICS_CLOSE": {"watch_id": 9},
    "WATCH_TC_ASSIGNMENTS": {"watch_id": 9},
    "WATCH_TC_ASSIGNMENTS_CLOSE": {"watch_id": 9},
    "TC_CLIENT_CONNECT_REQUEST": {**R, **TC},
    "NEW_TXN": {**R, **TC, "txn_ttl_seconds": 60_000},
    "ADD_PARTITION_TO_TXN": {**R, "partitions": [TOPIC]},
    "ADD_SUBSCRIPTION_TO_TXN": {**R, "subscription": [SUBSCRIBED]},
    "END_TXN": {**R, "txn_action": "COMMIT"},
    "END_TXN_ON_PARTITION": {**R, "topic": TOPIC, "txn_action": "COMMIT"},
    "END_TXN_ON_SUBSCRIPTION": {**R, "subscription": SUBSCRIBED, "txn_action": "COMMIT"},
}
"""A complete request of each command; those of transactions get the ids of one."""

OPENED: Final = "acts on a producer or consumer of its connection, which was opened with the right"
OWN: Final = "ends what its connection has begun"
BEGINS: Final = "begins a transaction; its topics and subscriptions need rights"
WITHOUT_A_RIGHT: Final = {
    "CONNECT": "finds the role",
    "PING": "says nothing",
    "PONG": "says nothing",
    "AUTH_RESPONSE": "proves the role again",
    "SEND": OPENED,
    "CLOSE_PRODUCER": OPENED,
    "FLOW": OPENED,
    "ACK": OPENED,
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": OPENED,
    "UNSUBSCRIBE": OPENED,
    "CLOSE_CONSUMER": OPENED,
    "SEEK": OPENED,
    "GET_LAST_MESSAGE_ID": OPENED,
    "CONSUMER_STATS": OPENED,
    "WATCH_TOPIC_LIST_CLOSE": OWN,
    "SCALABLE_TOPIC_CLOSE": OWN,
    "SCALABLE_TOPIC_UNSUBSCRIBE": OWN,
    "WATCH_SCALABLE_TOPICS_CLOSE": OWN,
    "WATCH_TC_ASSIGNMENTS_CLOSE": OWN,
    "WATCH_TC_ASSIGNMENTS": "tells the addresses of brokers alone",
    "TC_CLIENT_CONNECT_REQUEST": BEGINS,
    "NEW_TXN": BEGINS,
}
OF_ANOTHER_ROLE: Final = {"END_TXN": "TransactionNotFound"}
"""Commands whose right is that the transaction is the role's own, and the codes of their refusals."""


def ask(broker: BrokerProcess, method: str, path: str) -> Json:
    """The answer to the administrator."""
    headers = {"Authorization": f"Bearer {token({'sub': 'admin'})}"}
    url = f"{broker.addresses.admin}/admin/v2/persistent/{NAMESPACE}{path}"
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
        found: Json = json.loads(body) if body else None
        return found


def contents(broker: BrokerProcess) -> Json:
    """The topics of the namespace, and what the topic has open."""
    stats = ask(broker, "GET", "/secret/stats")
    assert isinstance(stats, dict)
    return [ask(broker, "GET", ""), stats["publishers"], stats["subscriptions"], stats["msgInCounter"]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), SETTINGS, memory=True) as broker:
        ask(broker, "PUT", "/secret")
        yield broker


async def connected(broker: BrokerProcess, role: str) -> RawConnection:
    connection = await RawConnection.open(broker.addresses.pulsar)
    await connection.connect(token=token({"sub": role}))
    return connection


async def begun(connection: RawConnection) -> tuple[int, int]:
    """A transaction of the connection's role."""
    connection.send("TC_CLIENT_CONNECT_REQUEST", request_id=1, **TC)
    await connection.receive("TC_CLIENT_CONNECT_RESPONSE")
    connection.send("NEW_TXN", request_id=2, txn_ttl_seconds=60_000, **TC)
    answer = (await connection.receive("NEW_TXN_RESPONSE")).command.newTxnResponse
    return answer.txnid_most_bits, answer.txnid_least_bits


async def answers_to_stranger(broker: BrokerProcess, name: str) -> list[BaseCommand]:
    """All answers to one command of a role without rights."""
    stranger, other = await connected(broker, "stranger"), await connected(broker, "other")
    try:
        fields = dict(REQUESTS[name])
        if "_TXN" in name and name != "NEW_TXN":
            most, least = await begun(other if name in OF_ANOTHER_ROLE else stranger)
            fields |= {"txnid_most_bits": most, "txnid_least_bits": least}
        stranger.send(name, **fields)
        stranger.send("PING")
        answers: list[BaseCommand] = []
        try:
            while (answer := (await stranger.receive()).command).type != BaseCommand.PONG:
                answers.append(answer)
            if not answers and name not in WITHOUT_A_RIGHT:
                # Its work is a task, which may end after the PING.
                answers.append((await stranger.receive()).command)
        except PeerClosedError:
            assert name in WITHOUT_A_RIGHT, "a refusal is an answer"
        return answers
    finally:
        await stranger.close()
        await other.close()


ALONE: Final = pytest.mark.one_broker("a raw client may not look up the coordinator that it uses")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[ALONE] if name == "END_TXN" else [])
        for name in (BaseCommand.Type.Name(kind) for kind in ROWS)
    ],
)
async def test_command_of_a_role_without_rights_is_refused_and_changes_nothing(
    guarded: BrokerProcess, name: str
) -> None:
    before = contents(guarded)
    answers = await answers_to_stranger(guarded, name)
    if name not in WITHOUT_A_RIGHT:
        (refusal,) = map(str, answers)
        assert f"{name} of " in refusal
        assert OF_ANOTHER_ROLE.get(name, "AuthorizationError") in refusal
    assert contents(guarded) == before


def test_rows_without_a_right_are_those_that_need_none() -> None:
    free = {BaseCommand.Type.Name(kind) for kind, row in ROWS.items() if isinstance(row.right, NoRight)}
    own = {
        BaseCommand.Type.Name(kind): row.right
        for kind, row in ROWS.items()
        if isinstance(row.right, OwnTransaction)
    }
    assert own == {name: OwnTransaction(name) for name in ("SEND", "ACK")}
    assert free | own.keys() == set(WITHOUT_A_RIGHT)
