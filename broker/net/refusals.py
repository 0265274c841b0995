"""Handlers of commands for features that are missing: each gets an answer, so that no client waits for one.

Transactions answer as Pulsar does with `transactionCoordinatorEnabled=false`.
"""

from __future__ import annotations

from broker.net.ports import Connection
from foundation.model.errors import NotAllowed
from protocol import answers
from protocol.pulsar_api_pb2 import BaseCommand

_REQUEST_FIELDS = {
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: "tcClientConnectRequest",
    BaseCommand.NEW_TXN: "newTxn",
    BaseCommand.ADD_PARTITION_TO_TXN: "addPartitionToTxn",
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: "addSubscriptionToTxn",
    BaseCommand.END_TXN: "endTxn",
    BaseCommand.END_TXN_ON_PARTITION: "endTxnOnPartition",
    BaseCommand.END_TXN_ON_SUBSCRIPTION: "endTxnOnSubscription",
}


def transactions(cnx: Connection, command: BaseCommand) -> None:
    """Answers every transaction command with NotAllowed, under its request id."""
    request = getattr(command, _REQUEST_FIELDS[command.type])
    cnx.send(answers.error(request.request_id, NotAllowed.code, "Transactions are not enabled."))
