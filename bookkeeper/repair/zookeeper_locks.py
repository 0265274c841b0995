"""Locks and votes in ZooKeeper: ephemeral nodes, as BookKeeper's workers and auditors make them.

    <ledgers>/underreplication/locks/urL0000000007           one worker has ledger 7
    <ledgers>/underreplication/auditorelection/V_0000000012  a candidate; the lowest number is the auditor

Both end with the session. A process whose session has expired learns of it by asking whose node it is.
"""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests
from protocol.underreplication import ELECTION, LOCKS, VOTE_PREFIX, encode_owner, encode_vote, lock_key

_ANY_VERSION: Final = -1


class _Nodes:
    """The ephemeral nodes of one session."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self.client = requests.client

    @property
    def session_id(self) -> int:
        """Returns ZooKeeper's number of the present session, 0 between two."""
        return self._requests.session.id

    def path(self, key: str) -> str:
        """Returns the node of a key."""
        return self._requests.url.root + key

    async def create(self, key: str, value: bytes) -> None:
        """Makes the node in the present session, unless it exists. Raises MetadataError."""
        path = self.path(key)
        answer = await self._requests.ask(
            lambda: self.client.create_async(path, value, ephemeral=True, makepath=True)
        )
        if not answer.refused(NodeExistsError):
            answer.value_or_raise()

    async def create_in_order(self, prefix: str, value: bytes) -> None:
        """Makes an ephemeral node whose name ends with the next number. Raises MetadataError."""
        path = self.path(prefix)
        answer = await self._requests.ask(
            lambda: self.client.create_async(path, value, ephemeral=True, sequence=True, makepath=True)
        )
        answer.value_or_raise()

    async def owner(self, key: str) -> int | None:
        """Returns the session that the node belongs to, None for a missing one."""
        path = self.path(key)
        answer = await self._requests.ask(lambda: self.client.exists_async(path))
        stat = answer.value_or_raise()
        return stat.owner_session_id if isinstance(stat, ZnodeStat) else None

    async def children(self, key: str) -> list[str]:
        """Returns the names below a node, unsorted; none for a missing one. Raises MetadataError."""
        path = self.path(key)
        answer = await self._requests.ask(lambda: self.client.get_children_async(path))
        if answer.refused(NoNodeError):
            return []
        names = answer.value_or_raise()
        assert isinstance(names, list)
        return names

    async def ensure(self, key: str) -> None:
        """Makes a lasting node where it is missing. Raises MetadataError."""
        path = self.path(key)
        answer = await self._requests.ask(lambda: self.client.create_async(path, b"", makepath=True))
        if not answer.refused(NodeExistsError):
            answer.value_or_raise()

    async def set(self, key: str, value: bytes) -> None:
        """Writes the value of a node. Raises MetadataError."""
        path = self.path(key)
        (await self._requests.ask(lambda: self.client.set_async(path, value))).value_or_raise()

    async def delete(self, key: str) -> None:
        """Removes a node; a missing one is fine. Raises MetadataError."""
        path = self.path(key)
        answer = await self._requests.ask(lambda: self.client.delete_async(path, _ANY_VERSION))
        if not answer.refused(NoNodeError):
            answer.value_or_raise()


class ZookeeperLocks:
    """`Locks` in ZooKeeper."""

    def __init__(self, requests: ZookeeperRequests, bookie_id: str) -> None:
        """`bookie_id` is written into each lock, for people."""
        self._nodes = _Nodes(requests)
        self._owner = encode_owner(bookie_id)

    async def prepare(self) -> None:
        """Makes the folder, which BookKeeper's workers expect. Raises MetadataError."""
        await self._nodes.ensure(LOCKS)

    async def take(self, ledger_id: int) -> ZookeeperLock | None:
        """Returns the lock, None when another process has it. Raises MetadataError."""
        key = lock_key(ledger_id)
        await self._nodes.create(key, self._owner)
        # The node says whose it is. The request may have waited for another session than the one it began in, and a lock
        # under the number of the former could never be released. A node that this session has left is taken again: a
        # process works on one ledger at a time, so no other part of it has the lock.
        owner, session_id = await self._nodes.owner(key), self._nodes.session_id
        return ZookeeperLock(self._nodes, key, session_id) if owner == session_id else None


class ZookeeperLock:
    """`Lock` in ZooKeeper, held by one session."""

    def __init__(self, nodes: _Nodes, key: str, session_id: int) -> None:
        """Made by `ZookeeperLocks.take`."""
        self._nodes = nodes
        self._key = key
        self._session_id = session_id

    async def is_held(self) -> bool:
        """Returns True when no other process can have had the lock since it was taken. Raises MetadataError."""
        return await self._nodes.owner(self._key) == self._session_id

    async def release(self) -> None:
        """Leaves another session's lock alone."""
        if await self.is_held():
            await self._nodes.delete(self._key)


class ZookeeperElection:
    """`Election` in ZooKeeper: the candidate with the lowest number is the auditor."""

    def __init__(self, requests: ZookeeperRequests, bookie_id: str) -> None:
        """`bookie_id` names the candidate in its vote."""
        self._nodes = _Nodes(requests)
        self._vote = encode_vote(bookie_id)
        self._announced_in = 0
        """The session in which this candidate was elected and said so."""

    async def is_elected(self) -> bool:
        """Looks at the votes, and makes one where this session has none."""
        session_id = self._nodes.session_id
        votes = await self._votes()
        owners = [await self._nodes.owner(vote) for vote in votes]
        if session_id not in owners:
            await self._nodes.create_in_order(f"{ELECTION}/{VOTE_PREFIX}", self._vote)
            return False  # The next check tells; another candidate may have made its vote at the same moment.
        first = next((owner for owner in owners if owner is not None), None)
        if first != session_id:
            return False
        if self._announced_in != session_id:
            # As BookKeeper's auditor does, for people who look which process it is.
            await self._nodes.set(ELECTION, self._vote)
            self._announced_in = session_id
        return True

    async def resign(self) -> None:
        """Removes this session's votes."""
        for vote in await self._votes():
            if await self._nodes.owner(vote) == self._nodes.session_id:
                await self._nodes.delete(vote)

    async def _votes(self) -> list[str]:
        names = [name for name in await self._nodes.children(ELECTION) if name.startswith(VOTE_PREFIX)]
        names.sort(key=lambda name: int(name.removeprefix(VOTE_PREFIX)))
        return [f"{ELECTION}/{name}" for name in names]
