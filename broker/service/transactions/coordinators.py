"""Coordinators: all transaction coordinators of the broker, by number.

Clients spread over `COORDINATORS` of them: they find the count as the number of partitions of `ASSIGN_TOPIC`, look each
partition up, and introduce themselves with TC_CLIENT_CONNECT. At the start the broker reads the logs of all
coordinators that it had before its ports open, so a topic can always ask how far a transaction is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from typing import Final

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.namespaces.partitioned_metadata import PartitionedMetadata
from broker.service.transactions.coordinator import Coordinator, Participants, Spawn
from broker.service.transactions.coordinator_log import LOG_PREFIX, LOGS_NAMESPACE, CoordinatorLog
from broker.service.transactions.transaction_limits import TransactionLimits
from broker.service.transactions.transaction_states import Subscribed, Transaction, TxnStatus
from foundation.model.errors import BrokerError, CoordinatorNotFound
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
    ) -> None:
        """`partitions` has `ASSIGN_TOPIC`. `open` is to be called next."""
        self.by_number: dict[int, Coordinator] = {}
        """Open coordinators. To look at only."""
        self.logs: dict[int, ManagedLedger] = {}
        """Their logs. To look at only."""
        self.participants = participants
        """Topics and subscriptions."""
        self._environment = environment
        self._partitions = partitions
        self._ledger_settings = ledger_settings
        self._limits = limits
        self._spawn = spawn
        self._opening = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Makes the topic that clients look up, and opens the coordinators that have a log.

        A coordinator that no client finds is closed again unless it has transactions: an earlier broker let roles
        without any right begin the logs of others. Logs of numbers that no broker gives out are left alone.
        """
        if not await self._partitions.count(ASSIGN_TOPIC):
            await self._partitions.create(ASSIGN_TOPIC, COORDINATORS, None)
        count, strange = await self.count(), 0
        for name in await self._environment.metadata.children(f"{LEDGERS_ROOT}/{LOGS_NAMESPACE}"):
            number = TopicName.local_from_ledger_name(name).removeprefix(LOG_PREFIX)
            if not _NUMBER.fullmatch(number):
                continue
            if int(number) >= COORDINATORS_MAX:
                strange += 1
                continue
            coordinator = await self._open_one(int(number))
            if coordinator.number >= count and not coordinator.transactions:
                del self.by_number[coordinator.number], self.logs[coordinator.number]
                await coordinator.journal.close()
        for coordinator in self.by_number.values():
            coordinator.resume()
        if strange:
            log.warning(
                "! %d logs of transaction coordinators are not opened: their numbers are above %d",
                *(strange, COORDINATORS_MAX - 1),
            )

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
        records = await CoordinatorLog.open(number, environment, self._ledger_settings)
        coordinator = Coordinator(
            number,
            records,
            self.participants,
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

    async def abort_of(self, owner: str) -> int:
        """Aborts the open transactions of a role at all coordinators; returns how many."""
        return sum([await one.abort_of(owner) for one in list(self.by_number.values())])

    def owner(self, txn: TxnId) -> str | None:
        """Returns the role that began the transaction; None without one, and for an unknown transaction."""
        coordinator = self.by_number.get(txn.most)
        known = None if coordinator is None else coordinator.transactions.get(txn)
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
                    await coordinator.journal.close()

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
        return self._holds(txn, lambda known: True)

    def is_expected(self, topic: str) -> bool:
        """Returns True when an open transaction has named the topic."""
        return any(
            topic in known.topics
            for coordinator in self.by_number.values()
            for known in coordinator.transactions.values()
        )

    def _holds(self, txn: TxnId, condition: Callable[[Transaction], bool]) -> bool:
        coordinator = self.by_number.get(txn.most)
        known = None if coordinator is None else coordinator.transactions.get(txn)
        return known is not None and condition(known)
