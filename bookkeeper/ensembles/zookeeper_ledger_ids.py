"""ZookeeperLedgerIds: ledger ids from ZooKeeper, made as every BookKeeper client makes them.

    <root>/ledgers/idgen/ID-0000000042     ephemeral and sequential; its number is the id, then it is deleted

The law: all clients of a cluster take ids from this one sequence, so no id is used twice. BookKeeper's name:
ZkLedgerIdGenerator. Each id costs a create and a delete. Callers that come while a request is out share the next one, so
a thousand topics that open after a crash make some dozens of requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial

from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperRequests
from foundation.model.errors import MetadataError

_PREFIX = "ID-"
_AT_ONCE = 100
"""Ids in one transaction of ZooKeeper's."""
_ID_MAX = 2**31 - 2
"""ZooKeeper's sequence numbers end there. BookKeeper then goes on with another generator, LongZkLedgerIdGenerator, which
this broker does not have."""


class ZookeeperLedgerIds:
    """`LedgerIdSource` in ZooKeeper."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._path = f"{requests.url.root}/ledgers/idgen"
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_taking = False

    async def next(self, above: int = -1) -> int:
        """Raises MetadataError when ZooKeeper refuses, or has no id above `above`.

        Skips one number after the other up to `above`, each for a round trip or two.
        """
        if above >= _ID_MAX:
            raise MetadataError(f"{self._path} has no ledger ids above {above}, they end at {_ID_MAX}")
        while True:
            ledger_id = await self._next()
            # ZooKeeper goes on with negative numbers.
            if not 0 <= ledger_id <= _ID_MAX:
                raise MetadataError(f"{self._path} has no ledger ids left below {_ID_MAX}")
            if ledger_id > above:
                return ledger_id

    def forget(self) -> None:
        """Does nothing: no id is taken ahead."""

    async def _next(self) -> int:
        taken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(taken)
        if not self._is_taking:
            self._is_taking = True
            self._spawn(self._take_waiting())
        return await taken

    async def _take_waiting(self) -> None:
        """Takes ids until nobody waits for one."""
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
                await self._take_for(some)
        finally:
            self._is_taking = False

    async def _take_for(self, waiting: list[asyncio.Future[int]]) -> None:
        try:
            ids = await self._take(len(waiting))
        except Exception as error:  # noqa: BLE001  # Of any kind: each caller would wait for ever.
            for one in waiting:
                if not one.done():  # The caller was cancelled.
                    one.set_exception(error)
        else:
            for one, ledger_id in zip(waiting, ids, strict=True):
                if not one.done():
                    one.set_result(ledger_id)

    async def _take(self, count: int) -> list[int]:
        # Asked again after a broken connection, it may take twice as many. The first are never used, and their nodes end
        # with the session.
        answer = await self._requests.ask(partial(self._begin, count))
        paths = answer.value_or_raise()
        if isinstance(paths, str):
            paths = [paths]
        assert isinstance(paths, list)
        if not all(isinstance(path, str) for path in paths):
            # No node is there to count below. A single request makes it.
            return [(await self._take(1))[0] for _ in range(count)]
        # The nodes have done their work. Left there, one per ledger would pile up until the session ends. The new ledgers
        # do not wait for it: that would be one more round trip.
        self._spawn(self._remove(paths))
        return [_number(path) for path in paths]

    def _begin(self, count: int) -> Pending:
        client, path = self._requests.client, f"{self._path}/{_PREFIX}"
        pending: Pending
        if count == 1:
            pending = client.create_async(path, b"", ephemeral=True, sequence=True, makepath=True)
        else:
            transaction = client.transaction()
            for _ in range(count):
                transaction.create(path, b"", ephemeral=True, sequence=True)
            pending = transaction.commit_async()
        return pending

    async def _remove(self, paths: list[str]) -> None:
        def begin() -> Pending:
            transaction = self._requests.client.transaction()
            for path in paths:
                transaction.delete(path)
            pending: Pending = transaction.commit_async()
            return pending

        with suppress(MetadataError):  # At the end of the session the nodes go anyway.
            await self._requests.ask(begin)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _number(path: str) -> int:
    return int(path.rpartition(_PREFIX)[2])
