"""A stage with transaction coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.lifecycle.transaction_participants import RegistryParticipants
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.coordinators import Coordinators
from broker.service.transactions.transaction_limits import TransactionLimits
from foundation.model.topic_name import parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.message_metadata import in_transaction
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import TOPIC, Stage, port_of


class Bench:
    """A stage with coordinators."""

    def __init__(self, **settings: object) -> None:
        self.stage = Stage(**settings)  # type: ignore[arg-type]
        self.work: list[object] = []
        self.coordinators = self._composed()
        self.holds_ends = False
        """Ends of transactions are decided, and reach no topic before the next start."""
        self._sequence = 0

    def _composed(self) -> Coordinators:
        registry = self.stage.registry
        registry.transaction_states = coordinators = Coordinators(
            self.stage.environment,
            ManagedLedgerSettings(rollover_ns_min=0, mark_delete_rate=0),
            RegistryParticipants(registry, lambda: self.stage.wall_ms),
            registry.partitions,
            spawn=self.spawn,
            limits=TransactionLimits(),
        )
        return coordinators

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        if self.holds_ends:
            work.close()
        else:
            self.work.append(asyncio.ensure_future(work))

    async def restart(self) -> None:
        """Closes the coordinators, and the topic if it is open, and opens new coordinators on the same logs."""
        await self.stage.run(self.coordinators.close())
        if TOPIC in self.stage.registry.topics:
            await self.stage.run(self.stage.registry.unload(parse_topic_name(TOPIC)))
        self.holds_ends = False
        self.coordinators = self._composed()
        await self.stage.run(self.coordinators.open())

    async def open(self) -> PersistentTopic:
        topic = await self.stage.open()
        await self.stage.run(self.coordinators.connect(0))
        return topic

    async def begin(self, *subscriptions: str, at: int = 0) -> TxnId:
        coordinator = self.coordinators.at(at)
        txn = await self.stage.run(coordinator.begin(60_000))
        await self.stage.run(coordinator.add_topics(txn, (TOPIC,)))
        if subscriptions:
            named = tuple((TOPIC, name) for name in subscriptions)
            await self.stage.run(coordinator.add_subscriptions(txn, named))
        return txn

    async def end(self, txn: TxnId, *, commit: bool) -> None:
        await self.stage.run(self.coordinators.at(0).end(txn, commit=commit))
        await self.stage.settle()

    async def publish(
        self, topic: PersistentTopic, txn: TxnId | None, *payloads: bytes, key: str = "k"
    ) -> None:
        producer = await self.stage.producer(topic, "publisher")
        for payload in payloads:
            self._sequence += 1
            body = message(payload, key=key, sequence_id=self._sequence)
            if txn is None:
                send(producer, self._sequence, body)
            else:
                stored = in_transaction(body, *txn)
                producer.publish_in_transaction(txn, self._sequence, 0, 1, stored, len(stored), False)
        await self.stage.settle()
        await topic.remove_producer(producer)
        if refusals := port_of(producer).refusals:
            raise refusals[0][1]

    async def reopened(self) -> PersistentTopic:
        await self.stage.run(self.stage.registry.unload(parse_topic_name(TOPIC)))
        return await self.stage.open()
