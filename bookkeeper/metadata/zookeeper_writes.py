"""ZookeeperWrites: compare-and-set on ZooKeeper's nodes, also when a connection breaks in the middle.

Three laws:

1. A key's version is its node's version, so ZooKeeper itself compares.
2. ZooKeeper keeps a tree: a node needs its parents. Those that no caller has put hold no bytes, count as absent, and are
   removed with the last key below them. That is why a value has at least one byte.
3. A write that was asked twice and then refused may be refused because of its own first attempt. The node tells: it has
   our value, one version further, and an ephemeral one our session. Without this check a log would give up its ledger for a
   write that succeeded. It does not help with a key that others advance too: such a node may be versions further, and its
   writer gets BadVersion for a write that was carried out. That writer needs a key of its own that tells (`shared_locks`).

Writes that belong together are one transaction of ZooKeeper's (`multi`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import ZnodeStat

from bookkeeper.metadata.metadata_store import ABSENT, Check, Ephemeral, Put, Write
from bookkeeper.metadata.zookeeper_reads import ZookeeperReads
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperAnswer, ZookeeperRequests
from foundation.model.errors import BadVersion, MetadataError

_ANY_VERSION = -1
"""ZooKeeper's number for a write that does not compare."""


class ZookeeperWrites:
    """Compare-and-set writes of nodes by their paths. Each returns when ZooKeeper has answered it for certain."""

    def __init__(self, requests: ZookeeperRequests, reads: ZookeeperReads) -> None:
        self._requests = requests
        self._reads = reads

    async def put(self, path: str, value: bytes, expected: int | None) -> list[int]:
        """Writes one node; returns its new version. Raises BadVersion; None as `expected` does not compare."""
        if expected is None:
            return [await self._put_any(path, value)]
        if expected == ABSENT:
            return await self.put_all([Put(path, value, ABSENT)])
        return [await self._set(path, value, expected)]

    async def put_all(self, puts: Sequence[Write], session_id: int | None = None) -> list[int]:
        """Writes all of the nodes or none; returns their versions afterwards. Raises BadVersion. `puts` have paths as
        keys.
        """
        placeholders: dict[str, int] = {}
        """Versions of nodes that are there without bytes, and count as absent."""
        while True:
            answer = await self._requests.ask(
                lambda: self._begin_transaction(puts, placeholders), session_id=session_id
            )
            results = answer.value_or_raise()
            assert isinstance(results, list)
            refused = next((each for each in zip(puts, results, strict=True) if _is_refusal(each[1])), None)
            if refused is None:
                return [_version_after(put, result) for put, result in zip(puts, results, strict=True)]
            put, why = refused
            if not isinstance(why, NoNodeError | NodeExistsError | BadVersionError):
                raise MetadataError(f"ZooKeeper refused: {type(why).__name__} {why}")
            # Two refusals are mended and tried again: parents are missing, or a node without bytes is in the way.
            if isinstance(put, Check) or put.expected != ABSENT:
                return await self._versions_if_ours(puts, placeholders, answer)
            if isinstance(why, NoNodeError) and put.key not in placeholders:
                await self._create_parents(put.key)
            elif not await self._is_absent(put, placeholders):
                return await self._versions_if_ours(puts, placeholders, answer)

    async def delete(self, path: str, expected: int | None, session_id: int) -> list[int]:
        """Removes the node, in the given session, and parents that are not needed any more. Raises BadVersion."""
        await self._delete_node(path, expected, session_id)
        await self._delete_empty_parents(path)
        return [0]

    async def _put_any(self, path: str, value: bytes) -> int:
        while True:
            answer = await self._requests.ask(lambda: self._requests.client.set_async(path, value))
            if not answer.refused(NoNodeError):
                return version_of(answer.value_or_raise())
            with contextlib.suppress(BadVersion):  # Another client made it in between: set it.
                await self.put_all([Put(path, value, ABSENT)])
                return 0

    async def _set(self, path: str, value: bytes, expected: int) -> int:
        answer = await self._requests.ask(lambda: self._requests.client.set_async(path, value, expected))
        if answer.refused(BadVersionError) or answer.refused(NoNodeError):
            found = await self._reads.node(path)
            if answer.asked > 1 and found is not None and found[:2] == (value, expected + 1):
                return found.version
            raise BadVersion(f"{path} does not have the expected version {expected}")
        return version_of(answer.value_or_raise())

    def _begin_transaction(self, puts: Sequence[Write], placeholders: dict[str, int]) -> Pending:
        transaction: TransactionRequest = self._requests.client.transaction()
        for put in puts:
            version = placeholders.get(put.key, put.expected)
            if isinstance(put, Check):
                transaction.check(put.key, version)
            elif version == ABSENT:
                transaction.create(put.key, put.value, ephemeral=isinstance(put, Ephemeral))
            else:
                transaction.set_data(put.key, put.value, version)
        pending: Pending = transaction.commit_async()
        return pending

    async def _is_absent(self, put: Put | Ephemeral, placeholders: dict[str, int]) -> bool:
        """Returns True when the node counts as absent, so that another attempt is due.

        The transaction took it for one in another version.
        """
        placeholders.pop(put.key, None)
        found = await self._reads.node(put.key)
        if found is None or found.value:
            return found is None
        if isinstance(put, Ephemeral):
            await self._remove_placeholder(put.key, found.version)
        else:
            placeholders[put.key] = found.version
        return True

    async def _remove_placeholder(self, path: str, version: int) -> None:
        """Makes room for an ephemeral node: a node that lasts cannot become one, and no node is below one."""
        answer = await self._requests.ask(lambda: self._requests.client.delete_async(path, version))
        if answer.refused(NotEmptyError):
            raise MetadataError(f"{path} cannot end with the session: there are keys below it")

    async def _versions_if_ours(
        self, puts: Sequence[Write], placeholders: dict[str, int], answer: ZookeeperAnswer
    ) -> list[int]:
        """Returns the versions if an earlier attempt was carried out.

        Raises BadVersion otherwise: the refusal of the transaction stands.
        """
        if answer.asked > 1:
            written = [put for put in puts if not isinstance(put, Check)]
            ours = await asyncio.gather(*(self._is_ours(put, placeholders) for put in written))
            if ours and all(ours):
                return [
                    put.expected if isinstance(put, Check) else placeholders.get(put.key, put.expected) + 1
                    for put in puts
                ]
        raise BadVersion(f"{', '.join(put.key for put in puts)} do not all have the expected versions")

    async def _is_ours(self, put: Put | Ephemeral, placeholders: dict[str, int]) -> bool:
        """Returns True for a node as this write leaves it."""
        answer = await self._requests.ask(lambda: self._requests.client.get_async(put.key))
        if answer.refused(NoNodeError):
            return False
        pair = answer.value_or_raise()
        assert isinstance(pair, tuple)
        value, stat = pair
        if isinstance(put, Ephemeral) and stat.ephemeralOwner != self._requests.session.id:
            return False  # Made in a session that has expired meanwhile, or by another process.
        return bool(value == put.value) and version_of(stat) == placeholders.get(put.key, put.expected) + 1

    async def _delete_node(self, path: str, expected: int | None, session_id: int) -> None:
        version = _ANY_VERSION if expected is None else expected
        answer = await self._requests.ask(
            lambda: self._requests.client.delete_async(path, version), session_id=session_id
        )
        if answer.refused(NotEmptyError):
            # Keys below it stay, so the node does too, without bytes.
            await self._set(path, b"", version)
        elif answer.refused(NoNodeError):
            # Asked twice, the first attempt may have removed it.
            if expected is not None and answer.asked == 1:
                raise BadVersion(f"{path} does not have the expected version {expected}")
        elif answer.refused(BadVersionError):
            raise BadVersion(f"{path} does not have the expected version {expected}")
        else:
            answer.value_or_raise()

    async def _create_parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        answer = await self._requests.ask(lambda: self._requests.client.create_async(parent, b""))
        if answer.refused(NoNodeError):
            await self._create_parents(parent)
        elif not answer.refused(NodeExistsError):  # Another writer made it first: fine.
            answer.value_or_raise()

    async def _delete_empty_parents(self, path: str) -> None:
        # ZooKeeper compares version and children, so a node that gets a value or a child meanwhile is not deleted.
        while (path := path.rpartition("/")[0]) != self._requests.url.root:
            found = await self._reads.node(path)
            # A refused deletion costs ZooKeeper as much as a write.
            if found is None or found.value or found.children:
                return
            delete = partial(self._requests.client.delete_async, path, found.version)
            if (await self._requests.ask(delete)).refusal is not None:
                return


def version_of(stat: object) -> int:
    """Returns the version in kazoo's description of a node."""
    assert isinstance(stat, ZnodeStat)
    return int(stat.version)


def _version_after(put: Write, result: object) -> int:
    """Returns the version of a key after its part of a transaction."""
    if isinstance(put, Check):
        return put.expected
    # A create returns its path, a set the node's description.
    return 0 if isinstance(result, str) else version_of(result)


def _is_refusal(result: object) -> bool:
    """Returns True for the operation that made its transaction fail.

    The others were undone, or not tried, because of it.
    """
    return isinstance(result, KazooException) and not isinstance(
        result, RolledBackError | RuntimeInconsistency
    )
