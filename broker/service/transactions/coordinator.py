"""Coordinator: begins transactions, keeps what they touch, and ends them everywhere.

Every change is a record in the log before it holds. Ending is two decisions with work between them:

    OPEN -> COMMITTING or ABORTING     the end is decided and survives every crash
    each topic writes a marker, each subscription applies or drops acknowledgements
    -> COMMITTED or ABORTED            everybody knows; the coordinator forgets the transaction

A crash between any two steps repeats the work, which every topic and subscription allows. A step that fails is tried
again until it succeeds, or until the coordinator is closed: where brokers share a store another one then goes on with it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from broker.service.transactions.coordinator_log import CoordinatorLog
from broker.service.transactions.transaction_limits import (
    OpenTransactions,
    TooManyTransactions,
    TransactionLimits,
)
from broker.service.transactions.transaction_states import (
    ENDED,
    Begun,
    Change,
    PartitionsAdded,
    StatusChanged,
    Subscribed,
    SubscriptionsAdded,
    Transaction,
    TxnStatus,
    apply,
    check_change,
)
from foundation.model.errors import (
    BrokerError,
    CoordinatorNotFound,
    InvalidTxnStatus,
    NotAllowed,
    TransactionNotFound,
)
from foundation.model.position import Position
from foundation.model.txn_id import TxnId

log = logging.getLogger("magnetar")

RETRY_SECONDS: Final = 1.0
"""Delay before a topic, a subscription or the log is asked again to end a transaction."""
EXPIRED_PER_TICK: Final = 500
"""Time-outs handled at once; thousands of clients may vanish in one moment."""

PARTICIPANTS_MAX: Final = 50_000
"""Topics and subscriptions of one transaction."""
DEADLINES_KEPT: Final = 1000
"""Deadlines of ended transactions that may wait before they are dropped."""

Spawn = Callable[[Coroutine[object, object, None], str], object]
"""(work, name): runs a coroutine as a task."""


class Participants(Protocol):
    """Topics and subscriptions, as a coordinator ends transactions on them."""

    async def prepare_topic(self, topic: str) -> None:
        """Lets an existing topic take messages of transactions."""
        ...

    async def end_on_topic(self, topic: str, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a topic; a missing topic counts as done. Raises BrokerError to be asked again."""
        ...

    async def end_on_subscription(self, subscribed: Subscribed, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a subscription; a missing one counts as done. Raises BrokerError likewise."""
        ...


DURATION_BOUNDS_MS: Final = (10, 20, 50, 100, 500, 1000, 5000, 15000, 30000, 60000, 300000, 1500000, 3000000)
"""Upper bounds of Pulsar's classes of durations, inclusive; a last class takes the rest."""
DURATION_CLASSES: Final = (*(f"le_{bound}" for bound in DURATION_BOUNDS_MS), "le_overflow")
"""Pulsar's names of these classes."""


class CoordinatorCounters:
    """Counts since the start, for /metrics."""

    def __init__(self) -> None:
        self.ended_in = dict.fromkeys(DURATION_CLASSES, 0)
        """Transactions that ended, by the time from their begin to their end."""
        self.begun = 0
        """Transactions begun."""
        self.committed = 0
        """Transactions committed."""
        self.aborted = 0
        """Transactions aborted, those that timed out included."""
        self.timed_out = 0
        """Transactions that timed out."""


class Coordinator:
    """One transaction coordinator; opened by `Coordinators`."""

    def __init__(
        self,
        number: int,
        journal: CoordinatorLog,
        participants: Participants,
        *,
        now_ns: Callable[[], int],
        wall_ms: Callable[[], int],
        spawn: Spawn,
        limits: TransactionLimits,
    ) -> None:
        """`recover` is to be called next."""
        self.limits = limits
        """Limits of transactions that it admits."""
        self.number = number
        """Most bits of its transactions."""
        self.journal = journal
        """Its records."""
        self.transactions: dict[TxnId, Transaction] = {}
        """All that are not over. To look at only."""
        self.counters = CoordinatorCounters()
        """For /metrics."""
        self.is_closed = False
        """True once it decides nothing any more."""
        self.recovery_ms: tuple[int, int] = (0, 0)
        """When reading the log began and ended, in milliseconds since 1970; the end is 0 until then."""
        self._participants = participants
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._spawn = spawn
        self._next = 0
        self._locks: dict[TxnId, asyncio.Lock] = {}
        self._ends: dict[TxnId, asyncio.Future[None]] = {}
        self._deadlines: list[tuple[int, TxnId]] = []
        self._begun = 0
        """Transactions that are not over, with those whose first record is being written."""
        self._of_role: Counter[str] = Counter()
        """The same of each role."""
        self._connections: dict[TxnId, OpenTransactions] = {}
        """Connections that began them, since the start."""
        self._newest = -1
        """The highest number in the log. Its records stay until a higher one is durable: after a restart the log must
        show which numbers were given out, because topics remember aborted transactions by them."""
        self._newest_records: list[Position] = []

    async def recover(self) -> None:
        """Reads the log and sets time-outs anew. Decided ends go on with `resume`."""
        began_ms = self._wall_ms()
        self.recovery_ms = began_ms, 0
        orphans: list[Position] = []
        self._next = self.journal.newest + 1
        async for txn, change, position in self.journal.read():
            self._next = max(self._next, txn.least + 1)
            if txn not in self.transactions and not isinstance(change, Begun):
                # The records before were acknowledged, so the transaction is over.
                orphans.append(position)
            else:
                apply(self.transactions, txn, change, position)
        self._newest = self._next - 1
        self.journal.forget(orphans)
        for transaction in list(self.transactions.values()):
            self._locks[transaction.txn] = asyncio.Lock()
            self._count(transaction.owner, 1)
            if transaction.status in ENDED:
                self._forget(transaction)
            elif transaction.status is TxnStatus.OPEN:
                # An earlier start may have admitted a longer time.
                timeout_ms = min(transaction.timeout_ms, self.limits.timeout_max_ms)
                left_ms = transaction.started_ms + timeout_ms - self._wall_ms()
                # The clock of the broker that began it may have been ahead of this one's.
                self._set_deadline(transaction.txn, min(left_ms, timeout_ms))
        self.recovery_ms = began_ms, self._wall_ms()

    def resume(self) -> None:
        """Goes on with the ends that the log has as decided. To be called once, when all coordinators have read their logs.

        An end opens topics, and a topic gives up every transaction that no coordinator knows.
        """
        for transaction in self.transactions.values():
            if transaction.status is not TxnStatus.OPEN:
                self._begin_end(transaction)

    async def close(self) -> None:
        """Closes the log. Decided ends go on where it is opened next. Raises MetadataError."""
        self.is_closed = True
        for end in self._ends.values():
            end.set_exception(self._closed())
            # Marks it as seen: a client that waits for the end may have gone.
            end.exception()
        self._ends.clear()
        await self.journal.close()

    def _closed(self) -> CoordinatorNotFound:
        # Clients look its new place up, and ask again there.
        return CoordinatorNotFound(f"Transaction coordinator with id {self.number} not found!")

    def _count(self, owner: str | None, more: int) -> None:
        self._begun += more
        if owner is not None:
            self._of_role[owner] += more
            if not self._of_role[owner]:
                del self._of_role[owner]

    def _uncount(self, txn: TxnId, owner: str | None) -> None:
        self._count(owner, -1)
        connection = self._connections.pop(txn, None)
        if connection is not None:
            connection.count -= 1

    @property
    def newest(self) -> int:
        """The highest number that was given to a transaction, -1 before the first."""
        return self._next - 1

    def is_over(self, txn: TxnId) -> bool:
        """Returns True for a transaction that was begun here or by an earlier owner of the log, and has ended everywhere."""
        return txn not in self.transactions and txn.least <= self._newest

    @property
    def active(self) -> int:
        """Transactions that are not over."""
        return len(self.transactions)

    @property
    def low_water_mark(self) -> int:
        """The number below which, itself included, every transaction is over; 0 without one that is not, as in Pulsar."""
        # Begun in the order of their numbers, so the first one left has the lowest.
        return next((txn.least - 1 for txn in self.transactions), 0)

    def _set_deadline(self, txn: TxnId, left_ms: int) -> None:
        heapq.heappush(self._deadlines, (self._now_ns() + max(0, left_ms) * 1_000_000, txn))
        # Most transactions end long before their time; without this their deadlines would pile up.
        if len(self._deadlines) > 2 * len(self.transactions) + DEADLINES_KEPT:
            self._deadlines = [pair for pair in self._deadlines if pair[1] in self.transactions]
            heapq.heapify(self._deadlines)

    # Requests

    async def begin(
        self, timeout_ms: int, owner: str | None = None, connection: OpenTransactions | None = None
    ) -> TxnId:
        """Begins a transaction of a role, on a connection.

        TooManyTransactions when the coordinator, the role or the connection has as many as the limits allow, NotAllowed
        for a longer time-out than they allow.
        """
        self._check_limits(owner, connection)
        longest_ms = self.limits.timeout_max_ms
        if timeout_ms > longest_ms:
            raise NotAllowed(
                f"A transaction of {timeout_ms} ms is too long; transactionTimeoutMaxSeconds allows {longest_ms} ms"
            )
        txn = TxnId(self.number, self._next)
        # Taken before the wait: two transactions at once must not get one number.
        self._next += 1
        self._locks[txn] = asyncio.Lock()
        # Before the wait as well: requests of one moment must not pass the limits together.
        self._count(owner, 1)
        if connection is not None:
            self._connections[txn] = connection
            connection.count += 1
        try:
            await self._change(txn, Begun(timeout_ms=timeout_ms, started_ms=self._wall_ms(), owner=owner))
        except BrokerError:
            del self._locks[txn]
            self._uncount(txn, owner)
            raise
        if txn.least > self._newest:
            before, self._newest_records = self._newest_records, []
            self._newest = txn.least
            self.journal.forget(before)
        self.counters.begun += 1
        self._set_deadline(txn, timeout_ms)
        return txn

    def _check_limits(self, owner: str | None, connection: OpenTransactions | None) -> None:
        """Raises TooManyTransactions when the connection, the role, or all together, may not begin another one."""
        of_role, limits = self._of_role, self.limits
        if connection is not None and 0 < limits.connection_max <= connection.count:
            raise TooManyTransactions(
                f"The connection has begun {connection.count} open transactions, "
                f"maxActiveTransactionsPerConnection allows {limits.connection_max}; end some of them"
            )
        if owner is not None and of_role[owner] >= limits.role_max:
            raise TooManyTransactions(
                f"Role {owner} has {of_role[owner]} open transactions at transaction coordinator {self.number}, "
                f"maxActiveTransactionsPerRole allows {limits.role_max}; end some of them"
            )
        count = self._begun
        if count >= limits.open_max:
            # A role above its limit, from the time of an older version or a higher limit, must not block the others.
            count -= sum([max(0, one - limits.role_max) for one in of_role.values()])
        if count >= limits.open_max:
            raise TooManyTransactions(
                f"Transaction coordinator {self.number} has {count} open transactions, "
                "the most that maxActiveTransactionsPerCoordinator allows"
            )

    async def abort_of(self, owner: str) -> int:
        """Aborts the open transactions of a role; returns how many, when every topic and subscription knows."""
        aborted = 0
        for txn in [txn for txn, one in self.transactions.items() if one.owner == owner]:
            try:
                await self.end(txn, commit=False)
                aborted += 1
            except (TransactionNotFound, InvalidTxnStatus):
                pass  # Its client, or its time-out, ended it meanwhile.
        return aborted

    async def add_topics(self, txn: TxnId, topics: tuple[str, ...]) -> None:
        """Notes topics that the transaction publishes to. TransactionNotFound, InvalidTxnStatus, NotAllowed."""
        check_change(self.transactions, txn, PartitionsAdded(topics))
        self._check_room(txn, len(topics))
        for topic in topics:
            await self._participants.prepare_topic(topic)
        await self._change(txn, PartitionsAdded(topics))

    async def add_subscriptions(self, txn: TxnId, subscriptions: tuple[Subscribed, ...]) -> None:
        """Notes subscriptions that the transaction acknowledges on. Raises as `add_topics`."""
        check_change(self.transactions, txn, SubscriptionsAdded(subscriptions))
        self._check_room(txn, len(subscriptions))
        await self._change(txn, SubscriptionsAdded(subscriptions))

    def _check_room(self, txn: TxnId, more: int) -> None:
        known = self.transactions[txn]
        if len(known.topics) + len(known.subscriptions) + more > PARTICIPANTS_MAX:
            raise NotAllowed(
                f"Transaction {txn} may have {PARTICIPANTS_MAX} topics and subscriptions together; use several"
            )

    async def end(self, txn: TxnId, *, commit: bool) -> None:
        """Ends a transaction and returns when everybody knows. TransactionNotFound, InvalidTxnStatus.

        A repeated request waits for the same end.
        """
        if self.is_closed:
            raise self._closed()
        known = self.transactions.get(txn)
        wanted = TxnStatus.COMMITTING if commit else TxnStatus.ABORTING
        if known is None or known.status is not wanted:
            known = await self._change(txn, StatusChanged(wanted))
            self._begin_end(known)
        # Shielded: a client that disconnects must not stop an end that is decided.
        await asyncio.shield(self._ends[txn])

    async def _change(self, txn: TxnId, change: Change) -> Transaction:
        """Writes a change and applies it; one at a time per transaction."""
        check_change(self.transactions, txn, change)
        async with self._locks[txn]:
            # Again: the state may have changed while this waited.
            check_change(self.transactions, txn, change)
            if self.is_closed:
                raise self._closed()
            position = await self.journal.append(txn, change, self._wall_ms())
            return apply(self.transactions, txn, change, position)

    # Ending

    def _begin_end(self, transaction: Transaction) -> None:
        if self.is_closed:
            raise self._closed()
        self._ends[transaction.txn] = asyncio.get_running_loop().create_future()
        self._spawn(self._end_everywhere(transaction), f"end of transaction {transaction.txn}")

    async def _end_everywhere(self, transaction: Transaction) -> None:
        txn, commit = transaction.txn, transaction.status is TxnStatus.COMMITTING
        work: list[Callable[[], Coroutine[object, object, object]]] = [
            lambda: self._tell(transaction, commit=commit),
            lambda: self._change(txn, StatusChanged(TxnStatus.COMMITTED if commit else TxnStatus.ABORTED)),
        ]
        for step in work:
            while True:
                try:
                    await step()
                    break
                except BrokerError as error:
                    if self.is_closed:
                        return
                    log.warning("! transaction %s cannot be ended yet, trying again: %s", txn, error)
                    await asyncio.sleep(RETRY_SECONDS)
        if commit:
            self.counters.committed += 1
        else:
            self.counters.aborted += 1
        place = bisect_left(DURATION_BOUNDS_MS, self._wall_ms() - transaction.started_ms)
        self.counters.ended_in[DURATION_CLASSES[place]] += 1
        self._forget(transaction)
        if (end := self._ends.pop(txn, None)) is not None:
            end.set_result(None)

    async def _tell(self, transaction: Transaction, *, commit: bool) -> None:
        participants, txn = self._participants, transaction.txn
        for topic in transaction.topics:
            await participants.end_on_topic(topic, txn, commit=commit)
        for subscribed in transaction.subscriptions:
            await participants.end_on_subscription(subscribed, txn, commit=commit)

    def _forget(self, transaction: Transaction) -> None:
        del self.transactions[transaction.txn]
        self._uncount(transaction.txn, transaction.owner)
        self._locks.pop(transaction.txn, None)
        if transaction.txn.least == self._newest:
            self._newest_records += transaction.records
        else:
            self.journal.forget(transaction.records)

    # Time-outs

    def expire(self, now_ns: int) -> None:
        """Begins to abort transactions whose time is over, a few hundred per call."""
        for _ in range(EXPIRED_PER_TICK):
            if not self._deadlines or self._deadlines[0][0] > now_ns:
                return
            _, txn = heapq.heappop(self._deadlines)
            known = self.transactions.get(txn)
            if known is not None and known.status is TxnStatus.OPEN:
                self._spawn(self._time_out(txn), f"time-out of transaction {txn}")

    async def _time_out(self, txn: TxnId) -> None:
        try:
            await self.end(txn, commit=False)
            self.counters.timed_out += 1
        except (TransactionNotFound, InvalidTxnStatus):
            pass  # Its client ended it in the same moment.
        except BrokerError as error:
            if self.is_closed:
                return
            log.warning("! transaction %s is over its time and cannot be aborted yet: %s", txn, error)
            self._set_deadline(txn, round(RETRY_SECONDS * 1000))
