"""ZookeeperLedgerIds: ledger ids from ZooKeeper, made as every BookKeeper client makes them.

    <root>/ledgers/idgen/ID-0000000042     ephemeral and sequential; its number is the id, then it is deleted

The law: all clients of a cluster take ids from this one sequence, so no id is used twice. BookKeeper's name:
ZkLedgerIdGenerator. Each id costs a create and a delete; those that are taken at the same time share ZooKeeper's sync.
"""

from __future__ import annotations

import asyncio

from bookkeeper.metadata.zookeeper_requests import ZookeeperAnswer, ZookeeperRequests
from foundation.model.errors import MetadataError

_PREFIX = "ID-"
_ID_MAX = 2**31 - 2
"""ZooKeeper's sequence numbers end there. BookKeeper then goes on with another generator, LongZkLedgerIdGenerator, which
this broker does not have."""


class ZookeeperLedgerIds:
    """`LedgerIdSource` in ZooKeeper."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._path = f"{requests.url.root}/ledgers/idgen"
        self._removing: set[asyncio.Task[ZookeeperAnswer]] = set()

    async def next(self, above: int = -1) -> int:
        """Raises MetadataError when ZooKeeper refuses, or has no id above `above`.

        Skips one number after the other up to `above`, each for a round trip or two.
        """
        if above >= _ID_MAX:
            raise MetadataError(f"{self._path} has no ledger ids above {above}, they end at {_ID_MAX}")
        while (ledger_id := await self._take()) <= above:
            continue
        return ledger_id

    async def _take(self) -> int:
        client = self._requests.client
        # Asked again after a broken connection, it may take two numbers. The first is never used, and its node ends
        # with the session.
        answer = await self._requests.ask(
            lambda: client.create_async(
                f"{self._path}/{_PREFIX}", b"", ephemeral=True, sequence=True, makepath=True
            )
        )
        path = answer.value_or_raise()
        assert isinstance(path, str)
        # The node has done its work. Left there, one per ledger would pile up until the session ends. The new ledger does
        # not wait for it: that would be one more round trip.
        removing = asyncio.ensure_future(self._requests.ask(lambda: client.delete_async(path)))
        self._removing.add(removing)
        removing.add_done_callback(self._removed)
        ledger_id = int(path.rpartition(_PREFIX)[2])
        if not 0 <= ledger_id <= _ID_MAX:
            raise MetadataError(f"{self._path} has no ledger ids left below {_ID_MAX}")
        return ledger_id

    def _removed(self, removing: asyncio.Task[ZookeeperAnswer]) -> None:
        self._removing.discard(removing)
        if not removing.cancelled():
            removing.exception()  # Marks it as seen: at the end of the session the node goes anyway.
