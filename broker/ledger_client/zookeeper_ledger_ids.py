"""Ledger ids from ZooKeeper, made as every BookKeeper client makes them, so that none is given out twice.

    <root>/ledgers/idgen/ID-0000000042     ephemeral and sequential; its number is the id, then it is deleted

A number is taken for each id; those that are taken at the same time share ZooKeeper's sync.
"""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from broker.metadata.zookeeper_session import ZookeeperSession
from broker.model.errors import MetadataError

PREFIX = "ID-"
ID_MAX = 2**31 - 2
"""ZooKeeper's sequence ends there; BookKeeper then goes on in another layout, which nobody here has needed yet."""


class ZookeeperLedgerIds:
    def __init__(self, session: ZookeeperSession) -> None:
        self._session = session
        self._path = f"{session.url.root}/ledgers/idgen"

    async def next(self, above: int = -1) -> int:
        """A fresh id greater than `above`. MetadataError when ZooKeeper refuses or has none left.

        Numbers up to `above` are taken and passed over, a round trip or two for each.
        """
        if above >= ID_MAX:
            raise MetadataError(f"{self._path} has no ledger ids above {above}, they end at {ID_MAX}")
        while (ledger_id := await self._take()) <= above:
            continue
        return ledger_id

    async def _take(self) -> int:
        """Asked again after a break it takes two numbers, of which one is never used and goes with the session."""
        client = self._session.client
        answer = await self._session.ask(
            lambda: client.create_async(
                f"{self._path}/{PREFIX}", b"", ephemeral=True, sequence=True, makepath=True
            )
        )
        path = answer.value_or_raise()
        assert isinstance(path, str)
        gone = await self._session.ask(lambda: client.delete_async(path))
        if not gone.refused(NoNodeError):
            gone.value_or_raise()
        ledger_id = int(path.rpartition(PREFIX)[2])
        if not 0 <= ledger_id <= ID_MAX:
            raise MetadataError(f"{self._path} has no ledger ids left below {ID_MAX}")
        return ledger_id
