"""Coordinators: all transaction coordinators of the broker, by number.

Clients spread over `COORDINATORS` of them: they find the count as the number of partitions of `ASSIGN_TOPIC`, look each
partition up, and introduce themselves with TC_CLIENT_CONNECT. At the start the broker reads the logs of all
coordinators that it had before its ports open, so a topic can always ask how far a transaction is.

Where brokers share a store (`TransactionCluster`), a coordinator is open at the owner of its partition alone, from the first
need on until the partition's bundle is given up. Topics of other brokers learn of a transaction when its first message or
acknowledgement comes, and forget it when they are told of its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from bookkeeper.metadata.metadata_store import Lease
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.namespaces.partitioned_metadata import PartitionedMetadata
from broker.service.transactions.coordinator import Coordinator, Participants, Spawn
from broker.service.transactions.coordinator_log import LOG_PREFIX, LOGS_NAMESPACE, CoordinatorLog
from broker.service.transactions.transaction_limits import TransactionLimits
from broker.service.transactions.transaction_states import Subscribed, Transaction, TxnStatus
from foundation.model.errors import BadVersion, BrokerError, CoordinatorNotFound, ServiceNotReady
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId

log = logging.getLogger("magnetar")

ASSIGN_TOPIC: Final = parse_topic_name("persistent://pulsar/system/transaction_coordinator_assign")
"""Pulsar's topic whose partitions stand for coordinators; it has no messages."""
COORDINATORS: Final = 16
"""Coordinators that clients find, as in Pulsar."""
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
"""The end of a log's name. Longer ones are no numbers of coordinators, and slow to read."""
COORDINATORS_MAX: Final = 256
"""The most coordinators that an administrator may let clients find; each has a managed ledger."""
LEARNT_MAX: Final = 10_000
"""Transactions of other brokers' coordinators that are kept; one that is dropped is asked for again."""


class TransactionCluster(Participants, Protocol):
    """All brokers on one store, as coordinators and topics of one of them see them."""

    async def lease(self, number: int) -> Lease | None:
        """Returns the condition for writes of a coordinator's log. ServiceNotReady unless this broker owns it."""
        ...

    async def is_here(self, number: int) -> bool:
        """Returns True where this broker owns the coordinator. The leader has a broker take one that nobody owns.

        Raises ServiceNotReady and MetadataError.
        """
        ...

    async def find(self, txn: TxnId) -> Transaction | None:
        """Returns an open transaction as its coordinator knows it; None for one that is over. Raises ServiceNotReady."""
        ...


class Coordinators:
    """Opens coordinators and finds them by number."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        ledger_settings: ManagedLedgerSettings,
        participants: Participants,
        partitions: PartitionedMetadata,
        *,
        spawn: Spawn,
        limits: TransactionLimits,
        cluster: TransactionCluster | None = None,
    ) -> None:
        """`partitions` has `ASSIGN_TOPIC`; `cluster` None: no other broker is on the store. `open` is to be called next."""
        self.by_number: dict[int, Coordinator] = {}
        """Open coordinators. To look at only."""
        self.logs: dict[int, ManagedLedger] = {}
        """Their logs. To look at only."""
        self.participants = participants
        """Topics and subscriptions of this broker."""
        self._environment = environment
        self._partitions = partitions
        self._ledger_settings = ledger_settings
        self._limits = limits
        self._spawn = spawn
        self._opening = asyncio.Lock()
        self._closed = False
        self._is_looking = False
        self._cluster = cluster
        self._learnt: dict[TxnId, Transaction] = {}
        """Open transactions of coordinators at other brokers."""
        self._questions: dict[object, TxnId] = {}
        """Those that are being asked for; an end in the meantime takes the question away, whose answer is old then."""

    async def open(self) -> None:
        """Makes the topic that clients look up, and opens the coordinators that have a log.

        A coordinator that no client finds is closed again unless it has transactions: an earlier broker let roles
        without any right begin the logs of others. Logs of numbers that no broker gives out are left alone.
        """
        if not await self._partitions.count(ASSIGN_TOPIC):
            # Brokers on one store may start at the same time.
            with contextlib.suppress(BadVersion):
                await self._partitions.create(ASSIGN_TOPIC, COORDINATORS, None)
        if self._cluster is not None:
            return
        count = await self.count()
        for number in await self._stored():
            coordinator = await self._open_one(number)
            if coordinator.number >= count and not coordinator.transactions:
                del self.by_number[coordinator.number], self.logs[coordinator.number]
                await coordinator.close()
        for coordinator in self.by_number.values():
            coordinator.resume()

    async def _stored(self) -> list[int]:
        """Returns the coordinators that have a log. Raises MetadataError."""
        numbers, strange = list[int](), 0
        for name in await self._environment.metadata.children(f"{LEDGERS_ROOT}/{LOGS_NAMESPACE}"):
            number = TopicName.local_from_ledger_name(name).removeprefix(LOG_PREFIX)
            if not _NUMBER.fullmatch(number):
                continue
            if int(number) < COORDINATORS_MAX:
                numbers.append(int(number))
            else:
                strange += 1
        if strange:
            log.warning(
                "! %d logs of transaction coordinators are not opened: their numbers are above %d",
                *(strange, COORDINATORS_MAX - 1),
            )
        return numbers

    async def keep_open(self) -> None:
        """Opens the coordinators that have a log and are this broker's, where brokers share a store.

        Called every few seconds: transactions of a broker that was killed end without their clients, too.
        """
        if self._cluster is None or self._closed or self._is_looking:
            return
        self._is_looking = True
        try:
            for number in await self._stored():
                if number not in self.by_number and await self._cluster.is_here(number):
                    await self.connect(number)
        except BrokerError as error:
            log.info("transaction coordinators cannot be looked at now: %s", error)
        finally:
            self._is_looking = False

    async def at_owner(self, number: int) -> Coordinator:
        """Returns a coordinator that another broker asks for, opened if it has a log. CoordinatorNotFound without one.

        ServiceNotReady where this broker does not own it.
        """
        if self._cluster is not None and number not in self.by_number:
            if self._closed:
                raise ServiceNotReady("The broker is shutting down")
            if number in await self._stored():
                return await self.connect(number)
        return self.at(number)

    async def close_those(self, is_given_up: Callable[[str], bool]) -> None:
        """Closes the coordinators of the partitions, by their full names, that this broker gives up."""
        async with self._opening:
            for number, coordinator in list(self.by_number.items()):
                if is_given_up(str(ASSIGN_TOPIC.with_partition(number))):
                    del self.by_number[number], self.logs[number]
                    try:
                        await coordinator.close()
                    except BrokerError as error:
                        # The next owner recovers the log.
                        log.warning("! transaction coordinator %d: %s", number, error)

    async def connect(self, number: int, *, restricted: bool = False) -> Coordinator:
        """Returns the coordinator, opened if need be. CoordinatorNotFound above `COORDINATORS_MAX`.

        `restricted` admits only numbers that clients find by a lookup; Pulsar admits every number to every client.
        """
        count = COORDINATORS_MAX
        if restricted:
            # Or a role without any right could open, and store for ever, logs that no client uses.
            count = await self.count()
        if number >= count:
            raise CoordinatorNotFound(
                f"Transaction coordinator {number} is not opened: use one of the numbers below {count}"
            )
        async with self._opening:
            if number not in self.by_number and not self._closed:
                (await self._open_one(number)).resume()
        return self.at(number)

    async def count(self) -> int:
        """Returns the number of coordinators that clients find."""
        return min(COORDINATORS_MAX, max(COORDINATORS, await self._partitions.count(ASSIGN_TOPIC)))

    async def _open_one(self, number: int) -> Coordinator:
        environment = self._environment
        lease = None if self._cluster is None else await self._cluster.lease(number)
        records = await CoordinatorLog.open(number, environment, self._ledger_settings, lease)
        coordinator = Coordinator(
            number,
            records,
            self._cluster or self.participants,
            now_ns=environment.now_ns,
            wall_ms=environment.wall_ms,
            spawn=self._spawn,
            limits=self._limits,
        )
        await coordinator.recover()
        self.by_number[number], self.logs[number] = coordinator, records.ledger
        return coordinator

    def at(self, number: int) -> Coordinator:
        """Returns an open coordinator, else raises CoordinatorNotFound: no client has introduced itself to it."""
        found = None if self._closed else self.by_number.get(number)
        if found is None:
            raise CoordinatorNotFound(f"Transaction coordinator with id {number} not found!")
        return found

    def owner(self, txn: TxnId) -> str | None:
        """Returns the role that began the transaction; None without one, and for an unknown transaction."""
        known = self._known(txn)
        return None if known is None else known.owner

    def tick(self) -> None:
        """Aborts transactions whose time is over; called several times a second."""
        now_ns = self._environment.now_ns()
        for coordinator in self.by_number.values():
            coordinator.expire(now_ns)

    async def close(self) -> None:
        """Closes all logs. Transactions go on after the next start.

        Topics still learn how far a transaction is: one that opens meanwhile would give up those that are not known.
        """
        self._closed = True
        async with self._opening:
            for coordinator in self.by_number.values():
                with contextlib.suppress(BrokerError):
                    await coordinator.close()

    # For topics and subscriptions

    def publishes(self, txn: TxnId, topic: str) -> bool:
        """Returns True while the transaction is open and has named the topic."""
        return self._holds(txn, lambda known: known.status is TxnStatus.OPEN and topic in known.topics)

    def acknowledges(self, txn: TxnId, subscribed: Subscribed) -> bool:
        """Returns True while the transaction is open and has named the subscription."""
        return self._holds(
            txn, lambda known: known.status is TxnStatus.OPEN and subscribed in known.subscriptions
        )

    def is_undecided(self, txn: TxnId) -> bool:
        """Returns True while a marker of the transaction may still come."""
        if self._cluster is None:
            return self._holds(txn, lambda known: True)
        # Another broker may have the coordinator by now, and have begun transactions that this one never heard of.
        coordinator = self.by_number.get(txn.most)
        return coordinator is None or not coordinator.is_over(txn)

    def is_expected(self, topic: str) -> bool:
        """Returns True when an open transaction has named the topic."""
        return any(
            topic in known.topics
            for coordinator in self.by_number.values()
            for known in coordinator.transactions.values()
        )

    def _holds(self, txn: TxnId, condition: Callable[[Transaction], bool]) -> bool:
        known = self._known(txn)
        return known is not None and condition(known)

    def _known(self, txn: TxnId) -> Transaction | None:
        coordinator = self.by_number.get(txn.most)
        return self._learnt.get(txn) if coordinator is None else coordinator.transactions.get(txn)

    # Transactions of coordinators at other brokers

    def may_learn(self, txn: TxnId) -> bool:
        """Returns True where another broker may know more of the transaction."""
        return self._cluster is not None and txn.most not in self.by_number and txn.most < COORDINATORS_MAX

    @property
    def prepares_late(self) -> bool:
        """True where a topic is prepared for transactions by its own broker, with the first message of one."""
        return self._cluster is not None

    async def learn(self, txn: TxnId) -> None:
        """Asks the transaction's coordinator what it publishes to and acknowledges on. Raises ServiceNotReady."""
        assert self._cluster is not None, "asked of others where there are others"
        question = object()
        self._questions[question] = txn
        try:
            found = await self._cluster.find(txn)
            if found is not None and question in self._questions:
                self._learnt[txn] = found
                if len(self._learnt) > LEARNT_MAX:
                    del self._learnt[next(iter(self._learnt))]
        finally:
            self._questions.pop(question, None)

    def forget(self, txn: TxnId) -> None:
        """Admits nothing more of a transaction of another broker's coordinator: it ends."""
        self._learnt.pop(txn, None)
        self._questions = {question: one for question, one in self._questions.items() if one != txn}

    def forget_topic(self, topic: str) -> None:
        """Forgets the transactions of a topic that is being opened: they may have ended while another broker had it."""
        for txn in [txn for txn, known in self._learnt.items() if topic in _topics_of(known)]:
            del self._learnt[txn]
        self._questions.clear()


def _topics_of(known: Transaction) -> set[str]:
    return {*known.topics, *(topic for topic, _ in known.subscriptions)}
