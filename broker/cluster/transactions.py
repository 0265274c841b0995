"""ClusterTransactions: transactions whose coordinator, topics and subscriptions have several brokers.

    coordinator -> the owner of each topic and subscription     END_TXN_ON_PARTITION, END_TXN_ON_SUBSCRIPTION
    owner of a topic -> coordinator                             which topics and subscriptions does this transaction have?

An end is told again until its owner has answered: after a crash the next owner of the coordinator reads from its log
that it is decided. So it reaches a topic more than once, and perhaps late; topics allow both.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bookkeeper.metadata.metadata_store import Lease
from broker.cluster.ownership import ClusterOwnership
from broker.peers.peers import PeerRefused
from broker.service.namespaces.namespaces import Json, NamespaceNotFound
from broker.service.topics.topic_ownership import Addresses
from broker.service.transactions.coordinator import Participants
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from broker.service.transactions.transaction_states import (
    Begun,
    PartitionsAdded,
    Subscribed,
    SubscriptionsAdded,
    Transaction,
    TxnStatus,
    apply,
)
from foundation.model.errors import ServiceNotReady
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.requests import end_txn_on_partition, end_txn_on_subscription

_NOT_FOUND: Final = 404


class ClusterTransactions:
    """Implements `Participants` for a coordinator of this broker, and `TransactionCluster` for its topics."""

    def __init__(self, ownership: ClusterOwnership, local: Participants) -> None:
        """`local`: topics and subscriptions of this broker."""
        self._ownership = ownership
        self._local = local

    # Participants

    async def prepare_topic(self, topic: str) -> None:
        """Does nothing: the topic's own broker prepares it when the first message of a transaction comes."""

    async def end_on_topic(self, topic: str, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a topic, at its owner. Raises BrokerError to be asked again."""
        owner = await self._owner(topic)
        if owner == self._ownership.owner:
            await self._local.end_on_topic(topic, txn, commit=commit)
        elif owner is not None:
            encode = partial(end_txn_on_partition, topic=topic, txn=txn, commit=commit)
            await self._ownership.peers.wires.tell(owner, encode)

    async def end_on_subscription(self, subscribed: Subscribed, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a subscription, likewise."""
        topic, subscription = subscribed
        owner = await self._owner(topic)
        if owner == self._ownership.owner:
            await self._local.end_on_subscription(subscribed, txn, commit=commit)
        elif owner is not None:
            encode = partial(
                end_txn_on_subscription, topic=topic, subscription=subscription, txn=txn, commit=commit
            )
            await self._ownership.peers.wires.tell(owner, encode)

    async def _owner(self, topic: str) -> Addresses | None:
        """Returns the topic's owner; None where its namespace is gone, and the topic with it."""
        try:
            return await self._ownership.located(parse_topic_name(topic))
        except NamespaceNotFound:
            return None

    # Cluster

    async def lease(self, number: int) -> Lease | None:
        """Returns the condition for writes of a coordinator's log. ServiceNotReady unless this broker owns it."""
        return await self._ownership.check_owned(_partition(number))

    async def is_here(self, number: int) -> bool:
        """Returns True where this broker owns the coordinator. The leader has a broker take one that nobody owns.

        Raises ServiceNotReady and MetadataError.
        """
        ownership, name = self._ownership, _partition(number)
        if ownership.bundle_of(name) in ownership.leases:
            return True
        if ownership.leader != ownership.owner.broker_id:
            return False
        return await ownership.located(name) == ownership.owner

    async def find(self, txn: TxnId) -> Transaction | None:
        """Returns an open transaction as its coordinator knows it; None for one that is over. Raises ServiceNotReady."""
        owner = await self._ownership.located(_partition(txn.most))
        path = f"/admin/v3/transactions/transactionMetadata/{txn.most}/{txn.least}"
        try:
            answer = await self._ownership.peers.request(owner, "GET", path)
        except PeerRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise ServiceNotReady(f"the coordinator of transaction {txn}: {error}") from error
        return open_transaction(txn, answer.body)


def _partition(number: int) -> TopicName:
    return ASSIGN_TOPIC.with_partition(number)


def open_transaction(txn: TxnId, shown: Json) -> Transaction | None:
    """Returns the transaction that an answer to `transactionMetadata` shows; None for one that ends."""
    if not isinstance(shown, dict) or shown.get("status") != TxnStatus.OPEN.name:
        return None
    produced, acked, owner = (shown.get(key) for key in ("producedPartitions", "ackedPartitions", "owner"))
    topics = tuple(produced) if isinstance(produced, dict) else ()
    subscribed = tuple(
        (topic, name)
        for topic, names in (acked.items() if isinstance(acked, dict) else ())
        for name in (names if isinstance(names, dict) else ())
    )
    known: dict[TxnId, Transaction] = {}
    begun = Begun(timeout_ms=0, started_ms=0, owner=owner if isinstance(owner, str) else None)
    for change in (begun, PartitionsAdded(topics), SubscriptionsAdded(subscribed)):
        apply(known, txn, change, EARLIEST)
    return known[txn]
