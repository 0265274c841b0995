"""Leases: the bundles that this broker owns. A lease is a node that ends with the session that made it.

Nobody else has a bundle while its node is there. A node with this broker's own addresses that it did not make in this
session is one of its earlier life: it is made anew, as Apache's brokers do (ResourceLockImpl).

A bundle may have been divided before its node was made, and this broker's copy of the policies may be older. So after each
node that it makes it reads the bundles of the namespace. From then on nobody else divides the bundle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from bookkeeper.metadata.metadata_store import Check, Ephemeral, MetadataStore, Stop
from broker.cluster.records import BUNDLES, decode_owner, encode_owner
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import BadVersion, MetadataError, OwnerUncertain, ServiceNotReady

_FRESH: Final = 0
"""The version of a node that was just made; a lease is never written again."""


def _nothing() -> None:
    """Stands for the end of a watch that is not there yet, and for a function that tells somebody where nobody listens."""


class BundleGone(ServiceNotReady):
    """The namespace does not have the bundle any more: it was divided."""


class Leases:
    """Bundles are named `tenant/namespace/range`."""

    def __init__(
        self, store: MetadataStore, lost: Callable[[str], None], exists: Callable[[str], Awaitable[bool]]
    ) -> None:
        """`lost` is called with a bundle whose node may have gone or changed.

        `exists` reads whether a bundle is one of its namespace's. Raises MetadataError.
        """
        self._store = store
        self._lost = lost
        self._exists = exists
        self._stops: dict[str, Stop] = {}
        """Ends of the watches of owned bundles."""
        self._former: set[str] = set()
        """Owned bundles whose nodes are of a session that has ended."""
        self._doubts: dict[str, object] = {}
        """Bundles whose nodes may have gone or changed, until they are looked at; the value is the last news of it."""
        self._left: set[str] = set()
        """Bundles that this broker does not own, and whose nodes it may have made: a request failed or was late."""
        self._session = 0
        """Counts the sessions that have ended."""
        # Two requests for one bundle would take each other's node for one of an earlier life.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._own = Addresses()
        self._value = b""
        self.made: Callable[[], None] = _nothing
        """Called when a lease was made, also anew, before the broker counts as its owner."""

    def open(self, own: Addresses) -> None:
        """Sets the addresses of this broker."""
        self._own, self._value = own, encode_owner(own)

    def __contains__(self, bundle: str) -> bool:
        return bundle in self._stops

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._stops))

    def __len__(self) -> int:
        return len(self._stops)

    def check(self, bundle: str) -> Check:
        """Returns the condition that the lease still stands, for a write. Raises OwnerUncertain where that is not known."""
        # A node that another broker has made in place of ours has the same version.
        if bundle not in self._stops or bundle in self._former or bundle in self._doubts:
            raise OwnerUncertain(f"this broker has no lease of {bundle}, or is not sure of it")
        return Check(_key(bundle), _FRESH)

    async def owner(self, bundle: str) -> Addresses | None:
        """Returns the addresses of the bundle's owner; None while nobody has it. Raises MetadataError."""
        if bundle in self._stops:
            return self._own
        node = await self._store.get(_key(bundle))
        return None if node is None else _decoded(bundle, node.value)

    async def owned_in(self, namespace: str) -> set[str]:
        """Returns the ranges of a namespace's bundles that have an owner now. Raises MetadataError."""
        # Another broker may have answered a lookup by now for a bundle that an older copy of the store shows without owner.
        await self._store.sync()
        return {*await self._store.children(f"{BUNDLES}/{namespace}")}

    async def acquire(self, bundle: str, taken: Callable[[], None] = _nothing) -> Addresses:
        """Takes the bundle unless another broker has it; returns its owner. Raises BundleGone and MetadataError.

        `taken` is called if this broker did not own it before.
        """
        lock = self._locks.setdefault(bundle, asyncio.Lock())
        async with lock:
            if bundle in self._stops and bundle not in self._former:
                return self._own
            return await self._make(bundle, taken)

    async def _make(self, bundle: str, taken: Callable[[], None]) -> Addresses:
        """Makes the node; an owned bundle stays owned until another broker's node is seen."""
        while True:
            session = self._session
            self._left.add(bundle)
            try:
                await self._store.put_all([Ephemeral(_key(bundle), self._value)])
                is_there = await self._exists(bundle)
                # Otherwise nobody knows in which of two sessions it was made.
                if session == self._session:
                    break
            except BadVersion:
                owner = await self._remove_own(bundle)
                if owner is not None:
                    self._left.discard(bundle)
                    self.drop(bundle)
                    return owner
            except MetadataError:
                # The node may be there, and no answer tells whether the bundle is: that of an owned bundle is made anew.
                if bundle in self._stops:
                    self._former.add(bundle)
                raise
        if not is_there:
            self.drop(bundle)
            # Failed, it is repeated later; the topics of the bundle must not wait for that.
            with contextlib.suppress(MetadataError):
                await self._remove_left(bundle)
            raise BundleGone(f"Namespace bundle {bundle} was divided. Please redo the lookup.")
        self._left.discard(bundle)
        if bundle not in self._stops:
            taken()
        self.drop(bundle)
        self.made()
        # Noted before the watch answers: the bundle is owned from the write on.
        self._stops[bundle] = _nothing
        try:
            self._stops[bundle] = await self._store.watch(_key(bundle), partial(self._doubt, bundle))
            # No watch tells of what happened before it was there.
            node = await self._store.get(_key(bundle))
        except MetadataError:
            # Without a watch nobody would tell of its end: it is made anew, as one of an ended session.
            self._former.add(bundle)
            self._lost(bundle)
            raise
        if node is None or node.value != self._value:
            self._doubt(bundle)
        return self._own

    async def _remove_own(self, bundle: str) -> Addresses | None:
        """Removes the node if it is this broker's; returns the owner otherwise. Raises MetadataError.

        The read comes first because a deletion compares a version alone, and each fresh node has the same one. A node that
        goes and is made by another broker between the two is removed all the same; that broker's watch tells it.
        """
        session = self._session
        node = await self._store.get(_key(bundle))
        owner = None if node is None else _decoded(bundle, node.value)
        if owner is not None and owner != self._own:
            return owner
        # A node that was read in an earlier session may have gone with that, and be another broker's by now.
        if node is not None and session == self._session:
            with contextlib.suppress(BadVersion):
                await self._store.delete(_key(bundle), node.version)
        return None

    def _doubt(self, bundle: str) -> None:
        self._doubts[bundle] = object()
        self._lost(bundle)

    async def release(self, bundle: str) -> None:
        """Gives the bundle up, whose topics are closed. Raises MetadataError."""
        lock = self._locks.setdefault(bundle, asyncio.Lock())
        async with lock:
            if bundle in self._stops:
                is_former = bundle in self._former
                self.drop(bundle)
                self._left.add(bundle)
                # A node of an ended session goes by itself, and may be another broker's by now. Only a write that was
                # answered before the news of the session's end was perhaps made in the next one.
                if not is_former:
                    await self._remove_left(bundle)

    async def _remove_left(self, bundle: str) -> None:
        session = self._session
        await self._remove_own(bundle)
        # Otherwise nothing was removed, and the write that made it may have been asked again in the next session.
        if session == self._session:
            self._left.discard(bundle)

    async def remove_left(self) -> None:
        """Removes the nodes that failed and late requests have left; those that fail again at the next call.

        Lookups elsewhere name this broker for such a bundle; for one that was divided meanwhile there are none. Raises
        MetadataError where the store does not answer.
        """
        if self._left:
            # Nodes of an ended session are gone, which an older copy of the store does not show.
            await self._store.sync()
        for bundle in sorted(self._left):
            lock = self._locks.setdefault(bundle, asyncio.Lock())
            async with lock:
                if bundle in self._left:
                    with contextlib.suppress(MetadataError):
                        await self._remove_left(bundle)

    async def is_kept(self, bundle: str) -> bool:
        """Makes the node of an owned bundle again if it has gone.

        Returns False if another broker has the bundle now, or the bundle was divided. Raises MetadataError.
        """
        lock = self._locks.setdefault(bundle, asyncio.Lock())
        async with lock:
            if bundle not in self._former:
                doubt = self._doubts.get(bundle)
                node = await self._store.get(_key(bundle))
                if node is not None and node.value == self._value:
                    # News that came during the read says more than the read.
                    if self._doubts.get(bundle) is doubt:
                        self._doubts.pop(bundle, None)
                    return True
            # It was given up during the waits.
            if bundle not in self._stops:
                return True
            try:
                return await self._make(bundle, _nothing) == self._own
            except BundleGone:
                return False

    def end_session(self) -> None:
        """Notes that the session has ended: every node is made again, also one that the store still shows."""
        self._session += 1
        self._former.update(self._stops)

    def drop(self, bundle: str) -> None:
        """Forgets a bundle whose node is gone, or another broker's."""
        self._former.discard(bundle)
        self._doubts.pop(bundle, None)
        stop = self._stops.pop(bundle, None)
        if stop is not None:
            stop()


def _key(bundle: str) -> str:
    return f"{BUNDLES}/{bundle}"


def _decoded(bundle: str, value: bytes) -> Addresses:
    try:
        return decode_owner(value)
    except ValueError as error:
        raise MetadataError(f"the owner of bundle {bundle} cannot be read: {error}") from error
