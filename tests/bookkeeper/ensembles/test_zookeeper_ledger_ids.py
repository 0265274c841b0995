"""ZookeeperLedgerIds over requests that fail; those to a real ZooKeeper: `tests/bookkeeper/metadata/test_zookeeper.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperAnswer, ZookeeperRequests


class Failing(SimpleNamespace):
    """Requests of which the first one ends with an error that nobody expects."""

    def __init__(self) -> None:
        super().__init__(url=SimpleNamespace(root=""))
        self.asked = 0

    async def ask(self, _: Callable[[], Pending]) -> ZookeeperAnswer:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked == 1:
            raise ValueError("broken")
        return ZookeeperAnswer([f"/ledgers/idgen/ID-{self.asked:010}"], None, 1)


async def test_an_unexpected_error_ends_one_request_and_no_later_one() -> None:
    ids = ZookeeperLedgerIds(cast("ZookeeperRequests", Failing()))
    first = asyncio.ensure_future(ids.next())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(ids.next())
    with pytest.raises(ValueError, match="broken"):
        await first
    assert await second == 2
    assert await ids.next() > 2
