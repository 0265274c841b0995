"""Coordinator: a crash between any two writes, time-outs, numbers, and thousands of open transactions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine, Iterable

import pytest

from broker.service.transactions.coordinator import Coordinator
from broker.service.transactions.coordinator_log import CoordinatorLog
from broker.service.transactions.transaction_limits import (
    OpenTransactions,
    TooManyTransactions,
    TransactionLimits,
)
from broker.service.transactions.transaction_states import Change, Subscribed, TxnStatus
from foundation.model.errors import (
    CoordinatorNotFound,
    InvalidTxnStatus,
    NotAllowed,
    PersistenceError,
    TransactionNotFound,
)
from foundation.model.position import Position
from foundation.model.txn_id import TxnId

TOPICS = ("persistent://public/default/a", "persistent://public/default/b")
SUBSCRIBED = (("persistent://public/default/a", "s"),)


class Disk:
    """The stored part of a broker, which survives a crash.

    After `left` writes the machine stands still: nothing is written or answered any more.
    """

    def __init__(self, left: int = 1_000_000) -> None:
        self.left = left
        self.records: dict[Position, tuple[TxnId, Change]] = {}
        self.ended: dict[str, set[str]] = {}
        """Verdicts by participant."""
        self.fails = False

    async def write(self) -> None:
        if self.fails:
            raise PersistenceError("the disk is full")
        if not self.left:
            await asyncio.get_running_loop().create_future()
        self.left -= 1


class Log(CoordinatorLog):
    """A coordinator's log on a Disk instead of a managed ledger."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.appended = 0
        self._next = itertools.count(max((position.entry_id for position in disk.records), default=-1) + 1)

    @property
    def newest(self) -> int:
        return -1

    async def read(self) -> AsyncIterator[tuple[TxnId, Change, Position]]:
        for position, (txn, change) in sorted(self.disk.records.items()):
            yield txn, change, position

    async def append(self, txn: TxnId, change: Change, now_ms: int) -> Position:
        await self.disk.write()
        position = Position(1, next(self._next))
        self.disk.records[position] = txn, change
        self.appended += 1
        return position

    def forget(self, positions: Iterable[Position]) -> None:
        for position in positions:
            del self.disk.records[position]

    async def close(self) -> None:
        pass


class Everybody:
    """Topics and subscriptions on a Disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.prepared: list[str] = []

    async def prepare_topic(self, topic: str) -> None:
        self.prepared.append(topic)

    async def end_on_topic(self, topic: str, txn: TxnId, *, commit: bool) -> None:
        await self._end(topic, commit=commit)

    async def end_on_subscription(self, subscribed: Subscribed, txn: TxnId, *, commit: bool) -> None:
        await self._end(str(subscribed), commit=commit)

    async def _end(self, name: str, *, commit: bool) -> None:
        await self.disk.write()
        self.disk.ended.setdefault(name, set()).add("commit" if commit else "abort")


class Life:
    """One life of a broker with a coordinator."""

    def __init__(self, disk: Disk, limits: TransactionLimits = TransactionLimits()) -> None:  # noqa: B008 - frozen
        self.tasks: list[asyncio.Task[object]] = []
        self.now_ns = 1_000_000_000
        self.everybody = Everybody(disk)
        self.coordinator = Coordinator(
            4,
            Log(disk),
            self.everybody,
            now_ns=lambda: self.now_ns,
            wall_ms=lambda: self.now_ns // 1_000_000,
            spawn=self.spawn,
            limits=limits,
        )

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    def die(self) -> None:
        for task in self.tasks:
            task.cancel()


async def run_transaction(life: Life, *, commit: bool) -> None:
    txn = await life.coordinator.begin(5000)
    await life.coordinator.add_topics(txn, TOPICS)
    await life.coordinator.add_subscriptions(txn, SUBSCRIBED)
    await life.coordinator.end(txn, commit=commit)


WRITES = 8
"""Begin, topics, subscriptions, the decision, two topics, a subscription, the fact."""


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("writes", range(WRITES + 1))
async def test_everybody_hears_one_verdict_after_a_crash_behind_any_write(writes: int, commit: bool) -> None:
    disk = Disk(writes)
    life = Life(disk)
    life.spawn(run_transaction(life, commit=commit), "client")
    await life.settle()
    decided = writes >= 4
    life.die()
    disk.left = 1_000_000
    after = Life(disk)
    await after.coordinator.recover()
    after.coordinator.resume()
    await after.settle()
    if not decided:
        after.now_ns += 6_000_000_000
        after.coordinator.expire(after.now_ns)
        await after.settle()
    wanted = "commit" if decided and commit else "abort"
    assert all(verdicts == {wanted} for verdicts in disk.ended.values())
    known = {0: 0, 1: 0, 2: 2}.get(writes, 3)
    assert len(disk.ended) == known
    assert not after.coordinator.transactions
    # The numbers go on, whatever was forgotten.
    assert await after.coordinator.begin(5000) == TxnId(4, 1 if writes else 0)


async def test_ended_transactions_leave_only_the_newest_records() -> None:
    disk = Disk()
    life = Life(disk)
    for _ in range(10):
        await run_transaction(life, commit=True)
    assert {txn.least for txn, _ in disk.records.values()} == {9}


async def test_number_is_kept_while_the_next_transaction_is_not_durable() -> None:
    disk = Disk()
    life = Life(disk)
    first = await life.coordinator.begin(5000)
    disk.left = 0
    life.spawn(life.coordinator.begin(5000), "second")  # type: ignore[arg-type]
    await life.settle()
    disk.left = 2
    await life.coordinator.end(first, commit=True)
    life.die()
    disk.left = 10
    after = Life(disk)
    await after.coordinator.recover()
    assert (await after.coordinator.begin(5000)).least > first.least


async def test_ten_thousand_open_transactions_time_out() -> None:
    disk = Disk()
    life = Life(disk)
    for _ in range(10_000):
        await life.coordinator.begin(1000)
    life.coordinator.expire(life.now_ns)
    assert len(life.coordinator.transactions) == 10_000
    life.now_ns += 2_000_000_000
    while life.coordinator.transactions:
        life.coordinator.expire(life.now_ns)
        await life.settle()
    assert life.coordinator.counters.timed_out == 10_000
    assert len({txn for txn, _ in disk.records.values()}) == 1


async def test_limit_of_open_transactions_refuses_the_next() -> None:
    life = Life(Disk(), TransactionLimits(open_max=1))
    await life.coordinator.begin(1000)
    with pytest.raises(TooManyTransactions, match="maxActiveTransactionsPerCoordinator"):
        await life.coordinator.begin(1000)


async def test_role_at_its_limit_is_refused_and_others_are_not() -> None:
    life = Life(Disk(), TransactionLimits(open_max=3, role_max=2))
    first = await life.coordinator.begin(1000, "mallory")
    # Requests of one moment do not pass the limit together.
    answers = await asyncio.gather(
        *[life.coordinator.begin(1000, "mallory") for _ in range(3)], return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, TooManyTransactions)]
    assert len(refused) == 2
    assert "maxActiveTransactionsPerRole" in str(refused[0])
    await life.coordinator.begin(1000, "alice")
    await life.coordinator.end(first, commit=False)
    await life.coordinator.begin(1000, "mallory")


async def test_role_above_its_limit_after_a_restart_blocks_no_other() -> None:
    disk = Disk()
    before = Life(disk, TransactionLimits(open_max=20, role_max=20))
    for _ in range(20):
        await before.coordinator.begin(5000, "mallory")
    before.die()
    after = Life(disk, TransactionLimits(open_max=20, role_max=2))
    await after.coordinator.recover()
    for _ in range(2):
        await after.coordinator.begin(1000, "alice")
    with pytest.raises(TooManyTransactions, match="maxActiveTransactionsPerRole"):
        await after.coordinator.begin(1000, "mallory")


async def test_transaction_of_a_longer_time_than_allowed_ends_by_the_limit_after_a_restart() -> None:
    disk = Disk()
    before = Life(disk)
    await before.coordinator.begin(80_000_000)
    before.die()
    after = Life(disk, TransactionLimits(timeout_max_ms=1000))
    await after.coordinator.recover()
    after.coordinator.expire(after.now_ns + 1_001_000_000)
    await after.settle()
    assert not after.coordinator.transactions


async def test_connection_at_its_limit_is_refused_until_one_of_its_transactions_ends() -> None:
    life, connection = Life(Disk(), TransactionLimits(connection_max=1)), OpenTransactions()
    txn = await life.coordinator.begin(1000, None, connection)
    with pytest.raises(TooManyTransactions, match="maxActiveTransactionsPerConnection"):
        await life.coordinator.begin(1000, None, connection)
    await life.coordinator.begin(1000, None, OpenTransactions())
    await life.coordinator.end(txn, commit=True)
    await life.coordinator.begin(1000, None, connection)


async def test_abort_of_a_role_leaves_the_transactions_of_others() -> None:
    life = Life(Disk())
    for role in ("mallory", "alice", "mallory"):
        await life.coordinator.begin(1000, role)
    assert await life.coordinator.abort_of("mallory") == 2
    assert [one.owner for one in life.coordinator.transactions.values()] == ["alice"]


async def test_timeout_beyond_the_limit_is_refused_and_nothing_is_begun() -> None:
    life = Life(Disk(), TransactionLimits(timeout_max_ms=5000))
    for timeout_ms in (5001, 2**64 - 1):
        with pytest.raises(NotAllowed, match="transactionTimeoutMaxSeconds"):
            await life.coordinator.begin(timeout_ms)
    assert life.coordinator.active == 0
    await life.coordinator.begin(5000)


async def test_second_end_waits_for_the_same_verdict_and_the_other_one_is_refused() -> None:
    disk = Disk()
    life = Life(disk)
    txn = await life.coordinator.begin(5000)
    await life.coordinator.add_topics(txn, TOPICS)
    disk.left = 1
    life.spawn(life.coordinator.end(txn, commit=True), "first")
    life.spawn(life.coordinator.end(txn, commit=True), "second")
    await life.settle()
    assert life.coordinator.transactions[txn].status is TxnStatus.COMMITTING
    with pytest.raises(InvalidTxnStatus):
        await life.coordinator.end(txn, commit=False)
    with pytest.raises(InvalidTxnStatus):
        await life.coordinator.add_topics(txn, TOPICS)
    assert not any(task.done() for task in life.tasks[:2])
    life.die()


async def test_transaction_that_is_over_is_not_found() -> None:
    life = Life(Disk())
    txn = await life.coordinator.begin(5000)
    await life.coordinator.end(txn, commit=True)
    for commit in (True, False):
        with pytest.raises(TransactionNotFound):
            await life.coordinator.end(txn, commit=commit)


async def test_refused_write_leaves_the_transaction_as_it_was() -> None:
    disk = Disk()
    life = Life(disk)
    txn = await life.coordinator.begin(5000)
    disk.fails = True
    for attempt in (
        life.coordinator.add_topics(txn, TOPICS),
        life.coordinator.end(txn, commit=True),
        life.coordinator.begin(5000),
    ):
        with pytest.raises(PersistenceError):
            await attempt
    disk.fails = False
    assert life.coordinator.transactions[txn].status is TxnStatus.OPEN
    assert not life.coordinator.transactions[txn].topics
    await life.coordinator.end(txn, commit=True)


async def test_transaction_of_a_broker_whose_clock_was_ahead_times_out_at_the_next_one() -> None:
    disk = Disk()
    before = Life(disk)
    before.now_ns += 86_400_000_000_000
    await before.coordinator.begin(5000)
    after = Life(disk)
    await after.coordinator.recover()
    after.now_ns += 5_000_000_000
    after.coordinator.expire(after.now_ns)
    await after.settle()
    assert not after.coordinator.transactions


async def test_coordinator_that_is_closed_decides_nothing_more() -> None:
    disk = Disk()
    life = Life(disk)
    txn = await life.coordinator.begin(5000)
    await life.coordinator.close()
    for work in (life.coordinator.end(txn, commit=True), life.coordinator.begin(5000)):
        with pytest.raises(CoordinatorNotFound):
            await work
    after = Life(disk)
    await after.coordinator.recover()
    assert after.coordinator.transactions[txn].status is TxnStatus.OPEN


async def test_records_without_their_beginning_are_dropped_at_the_start() -> None:
    disk = Disk()
    life = Life(disk)
    first = await life.coordinator.begin(5000)
    await life.coordinator.add_topics(first, TOPICS)
    await life.coordinator.begin(5000)
    # As when a crash has lost the acknowledgement of some records of a transaction that is over.
    del disk.records[min(disk.records)]
    after = Life(disk)
    await after.coordinator.recover()
    assert [txn.least for txn in after.coordinator.transactions] == [1]
    assert {txn.least for txn, _ in disk.records.values()} == {1}
