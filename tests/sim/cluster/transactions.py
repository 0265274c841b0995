"""Transactions of the simulated cluster: each publishes to several topics, whose brokers and coordinator move and crash.

* A transaction whose commit was answered is visible on all of its topics, one whose abort was answered on none, and one
  without an answer on all or none.
* No message of a transaction comes after its marker, and in the end no transaction is open anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

from bookkeeper.metadata.metadata_store import Lease
from broker.cluster.transactions import ClusterTransactions
from broker.service.entry_facts import facts_of
from broker.service.producer import AccessMode, Producer
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.coordinators import ASSIGN_TOPIC, Coordinators
from broker.service.transactions.log_reading import entries_after
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.message_metadata import TXN_COMMIT, in_transaction
from tests.fakes.messages import message
from tests.fakes.ports import FakeProducerPort
from tests.sim.cluster.clients import KEEPER, REQUEST_S, Unserved, call, find
from tests.sim.metadata import Broken

if TYPE_CHECKING:
    from tests.sim.cluster.history import ClusterHistory

TOPICS = tuple(parse_topic_name(f"persistent://sim/cluster/x{number}") for number in range(4))
COORDINATORS = (0, 5)
TIMEOUT_MS = 8000


@dataclass
class Transacted:
    """A transaction as its client knows it."""

    topics: tuple[TopicName, ...]
    outcome: str = "unknown"
    confirmed: set[TopicName] = field(default_factory=set)


class Transactor:
    """A client that begins one transaction after the other."""

    def __init__(self, history: ClusterHistory, number: int) -> None:
        self.history = history
        self.coordinator = COORDINATORS[number % len(COORDINATORS)]
        self.known: dict[TxnId, Transacted] = {}
        self.stops = False
        self._sequence = 0

    async def run(self) -> None:
        while not self.stops:
            try:
                await self._transact()
            except Unserved as error:
                self.history.note(f"transaction: {error}")
            await asyncio.sleep(self.history.rng.uniform(0.05, 1.0))

    async def _transact(self) -> None:
        history, number = self.history, self.coordinator
        process = await find(history, history.rng.choice(history.places), ASSIGN_TOPIC.with_partition(number))
        coordinators = process.coordinators
        await call(history, process, lambda: coordinators.connect(number))
        txn = await call(history, process, lambda: coordinators.at(number).begin(TIMEOUT_MS))
        topics = tuple(history.rng.sample(TOPICS, 2))
        known = self.known[txn] = Transacted(topics)
        await call(history, process, lambda: coordinators.at(number).add_topics(txn, tuple(map(str, topics))))
        for topic in topics:
            await self._publish(topic, txn)
            known.confirmed.add(topic)
        commit = history.rng.random() < 0.8
        await call(history, process, lambda: coordinators.at(number).end(txn, commit=commit))
        known.outcome = "committed" if commit else "aborted"
        history.note(f"transaction {txn} is {known.outcome}")
        if commit:
            history.counts.committed += 1

    async def _publish(self, name: TopicName, txn: TxnId) -> None:
        """Publishes one message and returns when it is confirmed. Raises Unserved."""
        history = self.history
        process = await find(history, history.rng.choice(history.places), name)
        topic = await call(history, process, lambda: process.registry.get(name, create=True))
        assert isinstance(topic, PersistentTopic)
        if KEEPER not in topic.subscriptions:
            await call(history, process, partial(topic.subscribing.create, KEEPER, EARLIEST, {}))
        port = FakeProducerPort()
        producer = Producer(
            topic, port, producer_id=0, name="x", access_mode=AccessMode.SHARED, topic_epoch=None
        )
        producer.name = f"x-{history.next_number()}"
        await call(history, process, lambda: topic.add_producer(producer))
        self._sequence += 1
        body = in_transaction(message(b"%d" % self._sequence), *txn)

        async def publish() -> None:
            # As `broker/net` does before a SEND.
            states = process.coordinators
            if not states.publishes(txn, str(name)) and states.may_learn(txn):
                await states.learn(txn)
            if states.publishes(txn, str(name)):
                await topic.transactions.open_buffer()
            producer.publish_in_transaction(txn, self._sequence, 0, 1, body, len(body), False)

        await call(history, process, publish)
        for _ in range(int(REQUEST_S / 0.05)):
            if port.receipts or port.refusals or process.client.crashed:
                break
            await asyncio.sleep(0.05)
        if not process.client.crashed and not topic.closed:
            process.spawn(topic.remove_producer(producer), "producer leaves")
        if not port.receipts or process.client.crashed:
            raise Unserved(f"no receipt of {name}: {port.refusals}")


async def judge(history: ClusterHistory, transactors: list[Transactor]) -> None:
    """Raises Broken where a transaction is there in part."""
    committed: dict[TopicName, set[TxnId]] = {}
    for name in TOPICS:
        owner = await find(history, history.places[0], name)
        topic = await call(history, owner, partial(owner.registry.get, name, create=True))
        assert isinstance(topic, PersistentTopic)
        buffer = topic.transactions.buffer
        if buffer is not None and buffer.open:
            raise Broken(f"{name} has open transactions in the end: {[*buffer.open]}")
        committed[name] = await _committed(topic)
        if buffer is not None and (hidden := committed[name] & buffer.aborted.keys()):
            raise Broken(f"{name} hides transactions that are committed: {hidden}")
    for transactor in transactors:
        for txn, known in transactor.known.items():
            there = {name for name in known.topics if txn in committed[name]}
            expected = {"committed": [set(known.topics)], "aborted": [set[TopicName]()]}.get(
                known.outcome, [set(known.topics), set[TopicName]()]
            )
            if there not in expected:
                raise Broken(
                    f"transaction {txn}, {known.outcome}, is at {[*map(str, there)]} of {[*map(str, known.topics)]}"
                )


async def _committed(topic: PersistentTopic) -> set[TxnId]:
    """Returns the transactions whose messages on the topic are committed."""
    there: set[TxnId] = set()
    ended: dict[TxnId, bool] = {}
    async for entry in entries_after(topic.ledger, EARLIEST):
        facts = facts_of(entry)
        if facts is None or facts.txn is None:
            raise Broken(f"{topic.name} has a message without a transaction")
        txn = TxnId(*facts.txn)
        if facts.marker:
            commit = facts.marker == TXN_COMMIT
            if ended.setdefault(txn, commit) != commit:
                raise Broken(f"transaction {txn} is committed and aborted on {topic.name}")
        elif txn in ended:
            raise Broken(f"a message of transaction {txn} is behind its marker on {topic.name}")
        else:
            there.add(txn)
    return {txn for txn in there if ended.get(txn)}


def _ends_are_told_once() -> object:
    """A coordinator goes on when the owner of a topic does not answer."""
    plain = ClusterTransactions.end_on_topic

    async def end_on_topic(self: ClusterTransactions, topic: str, txn: TxnId, *, commit: bool) -> None:
        with contextlib.suppress(BrokerError):
            await plain(self, topic, txn, commit=commit)

    return mock.patch.object(ClusterTransactions, "end_on_topic", end_on_topic)


def _topics_give_up_what_others_decide() -> object:
    """A topic that opens aborts the open transactions of coordinators at other brokers."""

    def is_undecided(self: Coordinators, txn: TxnId) -> bool:
        return self._known(txn) is not None

    return mock.patch.object(Coordinators, "is_undecided", is_undecided)


def _coordinators_without_lease() -> object:
    """A coordinator opens at every broker that is asked for it."""

    async def lease(self: ClusterTransactions, number: int) -> Lease | None:
        return None

    return mock.patch.object(ClusterTransactions, "lease", lease)


TRANSACTION_BREAKAGES: dict[str, Callable[[], object]] = {
    "ends-are-told-once": _ends_are_told_once,
    "topics-give-up-what-others-decide": _topics_give_up_what_others_decide,
    "coordinators-without-lease": _coordinators_without_lease,
}
