"""LedgerListStore: the stored list of a managed ledger's BookKeeper ledgers (Pulsar's ManagedLedgerInfo).

Three rules make every crash between two writes recoverable (docs/architecture.md, "Taking a managed ledger over"):

1. A ledger begins together with the list that names it, in one write. A broker that opens the managed ledger finds
   it there and fences it, or has made sure by a write of its own that it never begins.
2. A ledger ends in its own metadata first, then in the list, so an end in the list needs no second look.
3. A ledger leaves the list first ("deleting"), then the metadata store and the bookie.

So there is never a ledger that no list refers to, and the next open can finish what a crash has interrupted.

Ledgers beside the list hold data derived from its entries: topic compaction has one or two. The stored list names them, but
their positions are no positions of the managed ledger.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.own_ledger import OwnLedger
from bookkeeper.ensembles.racks import Affinity
from bookkeeper.ensembles.settings import Copies
from bookkeeper.metadata.metadata_store import ABSENT, Check, Lease, MetadataStore, Put
from bookkeeper.metadata.owned_key import OwnedKey
from broker.managed_ledger.ledger_list import LedgerList, OffloadedLedger
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import PLAIN, Compression, encode_ledger_list
from broker.managed_ledger.removal.deletion import delete_objects, no_tier, together
from foundation.model.errors import BadVersion, NotEnoughBookies
from foundation.model.position import Position
from foundation.seldom import lock_of

if TYPE_CHECKING:
    from broker.managed_ledger.offload.tier import OpenTier

_NONE_UNSEALED: Final[Mapping[int, OwnLedger]] = MappingProxyType({})


class LedgerListStore:
    """Writes the list by compare-and-set.

    BadVersion means that another broker has the managed ledger now. A caller holds `lock` around a change of the list
    and the call that stores it.
    """

    __slots__ = (
        "_client",
        "_compression",
        "_deleting",
        "_is_taken",
        "_list",
        "_metadata",
        "_name",
        "_objects",
        "_unsealed",
        "affinity",
        "beside",
        "buckets",
        "created_ms",
        "current_started",
        "is_new",
        "lease",
        "ledgers",
        "open_tier",
        "properties",
        "terminated",
    )

    def __init__(
        self,
        name: str,
        metadata: MetadataStore,
        client: Ledgers,
        ledgers: LedgerList,
        info: ManagedLedgerInfo,
        version: int,
        compression: Compression = PLAIN,
    ) -> None:
        """`version`: of the value stored now, or ABSENT."""
        self.ledgers = ledgers
        """The list as it is in memory; stored with the next write."""
        self.properties: Mapping[str, str] = info.properties
        """Stored with the next write; `index` (PIP-70) is the managed ledger's own. Replaced by each change, because new
        managed ledgers share theirs."""
        self.terminated: Position | None = info.terminated
        """The last entry, if no entry may follow."""
        self.buckets = tuple(info.delayed)
        """Ledgers that keep buckets of delayed entries; `start_bucket` and `drop_buckets` change it."""
        self.created_ms = info.created_ms
        """When the managed ledger was made, ms since 1970; 0 = not known."""
        self.current_started = False
        """The current ledger is in the metadata store, or may be after a write whose outcome is not known."""
        self.is_new = version == ABSENT
        """The store had nothing of this managed ledger when it was opened."""
        self._name = name
        self._compression = compression
        self._client = client
        self._list = OwnedKey(metadata, version)
        self._metadata = metadata
        self.beside = tuple(info.beside)
        """Ledgers that belong to the managed ledger and hold no part of its log; each may exist or not."""
        self._deleting = tuple(info.deleting)
        self._objects = tuple(info.deleting_objects)
        self.open_tier: OpenTier = no_tier
        """Opens the storage that keeps copies of ledgers, when one of them is to be deleted."""
        self.affinity: Affinity | None = None
        """Groups of bookies for ledgers that begin."""
        self.lease: Lease | None = None
        """The condition that this broker owns the topic: of the first write of the list, and of all writes of cursors."""
        self._is_taken = False
        """The first write was made: later ones compare the list's version alone."""
        self._unsealed = _NONE_UNSEALED
        """Ledgers whose own metadata says open. Made anew by each change, as the tuples: most topics have none of these."""

    @property
    def version(self) -> int:
        """Of the list that was read or written last; ABSENT before the first write of a new one."""
        return self._list.version

    @property
    def lock(self) -> Lock:
        """One change at a time: two writes with the same version would look like two brokers."""
        return lock_of(self)

    async def save(self) -> None:
        """Stores the ends of closed ledgers, then the list. Raises MetadataError."""
        await self._seal()  # Second rule: the ledger's own metadata first.
        await self._put(self._encoded())

    async def start_current(self, copies: Copies | None) -> OwnLedger:
        """Makes the current ledger writable, with so many copies; None = as many as the settings say.

        The list and the ledger's metadata are stored in one write. Raises MetadataError and NotEnoughBookies.
        """
        await self._seal()
        ledger_id = self.ledgers.current.ledger_id
        # List and ledger are one write, or a crash between two would leave one without the other.
        begin = partial(self._begin, ledger_id, self._custom(b"managed-ledger"), copies)
        try:
            own = await self._list.put_with(self._key, self._encoded(with_current=True), begin)
        except (BadVersion, NotEnoughBookies):
            raise  # It was not made.
        except BaseException:
            # The write may be carried out all the same: the list goes on naming the ledger until the next one begins,
            # and then it is deleted as an empty one. Left out of the list, it would never be deleted.
            self.current_started = True
            raise
        self._unsealed = {**self._unsealed, ledger_id: own}
        self.current_started = True
        return own

    async def start_bucket(self, ledger_id: int) -> OwnLedger:
        """Makes a ledger for a bucket of delayed entries, and names it in the list, in one write.

        Raises MetadataError and NotEnoughBookies.
        """
        self.buckets += (ledger_id,)
        try:
            return await self._begin_named(ledger_id, self._custom(b"delayed-index-bucket"))
        except BaseException:
            self.buckets = _without(self.buckets, ledger_id)
            raise

    def drop_buckets(self, ledger_ids: Iterable[int]) -> None:
        """Marks ledgers of buckets for deletion; the next write of the list stores that they have left it."""
        gone = tuple(ledger_id for ledger_id in ledger_ids if ledger_id in self.buckets)
        self.buckets = _without(self.buckets, *gone)
        self._deleting += gone

    async def begin_beside(self, ledger_id: int, custom: dict[str, bytes]) -> OwnLedger:
        """Begins a ledger beside the list; the same write names it in the list.

        `custom`: its owner, for tools. Raises MetadataError and NotEnoughBookies; nothing is stored then.
        """
        self.beside += (ledger_id,)
        try:
            return await self._begin_named(ledger_id, custom)
        except BaseException:
            self.beside = _without(self.beside, ledger_id)
            raise

    async def _begin_named(self, ledger_id: int, custom: dict[str, bytes]) -> OwnLedger:
        """Begins a ledger that the list names already; the caller takes the name back when this fails."""
        try:
            await self._seal()
            return await self._list.put_with(
                self._key, self._encoded(), partial(self._begin, ledger_id, custom, None)
            )
        except (BadVersion, NotEnoughBookies):
            raise  # It was not made; a later write of the list must not name it.
        except BaseException:
            # Also when the caller is cancelled: the write may be carried out all the same. Left out of the list, such a
            # ledger would never be deleted. Deleting one that does not exist does nothing.
            self._deleting += (ledger_id,)
            raise

    async def _begin(
        self, ledger_id: int, custom: dict[str, bytes], copies: Copies | None, list_put: Put
    ) -> tuple[OwnLedger, int]:
        if self.affinity is not None:
            custom = {**custom, **self.affinity.custom()}
        beside: tuple[Put | Check, ...] = (list_put, *self._conditions())
        own, versions = await self._client.create_with(ledger_id, custom, beside, copies)
        self._is_taken = True
        return own, versions[0]

    async def remove_beside(self, ledger_id: int) -> None:
        """Deletes a ledger beside the list, then its name. Raises MetadataError; the next opening continues."""
        # The name goes last: while it is there, an interrupted deletion is done again.
        await self._client.delete(ledger_id)
        self.beside = _without(self.beside, ledger_id)
        await self.save()

    def mark_deleting(self, ledger_ids: Iterable[int], objects: Iterable[OffloadedLedger] = ()) -> None:
        """Marks ledgers that have left the list, and copies of them in other storage, for deletion.

        The next write of the list stores the marks.
        """
        self._deleting += tuple(ledger_ids)
        self._objects += tuple(objects)

    @property
    def has_marked(self) -> bool:
        """True while ledgers are marked for deletion and not deleted."""
        return bool(self._deleting or self._objects)

    @property
    def has_marked_objects(self) -> bool:
        """True while copies in other storage are marked for deletion and not deleted."""
        return bool(self._objects)

    async def delete_marked(self) -> None:
        """Stores the marks, then deletes those ledgers.

        Raises MetadataError; the next call or the next opening continues.
        """
        if self.has_marked:
            # Marks that come during the wait belong to the next call: their list is not stored yet.
            marked, objects = self._deleting, self._objects
            await self.save()
            await together(self._client.delete(item) for item in marked)
            self._deleting = _without(self._deleting, *marked)
            if objects:
                await delete_objects(self.open_tier, self._name, objects)
                self._objects = self._objects[len(objects) :]
            self._forget_unsealed(*marked)

    def _forget_unsealed(self, *ledger_ids: int) -> None:
        left = {key: own for key, own in self._unsealed.items() if key not in ledger_ids}
        self._unsealed = left or _NONE_UNSEALED

    async def _seal(self) -> None:
        for ledger_id, own in self._unsealed.items():
            info = self.ledgers.get(ledger_id)
            if info is not None and info.closed_at_ms is not None:
                await own.close(info.entries - 1, info.size_bytes)
                self._forget_unsealed(ledger_id)

    def _encoded(self, with_current: bool = False) -> bytes:
        # A current ledger that has not begun is an id in memory; the list must not name what does not exist.
        current = self.ledgers.current
        kept = [
            info
            for info in self.ledgers.infos()
            if info is not current or with_current or self.current_started or info.entries
        ]
        return encode_ledger_list(
            ManagedLedgerInfo(
                kept,
                dict(self.properties),
                self.terminated,
                list(self._deleting),
                list(self.buckets),
                beside=list(self.beside),
                created_ms=self.created_ms,
                deleting_objects=list(self._objects),
            ),
            self._compression,
        )

    async def _put(self, value: bytes) -> None:
        await self._list.put_with(self._key, value, self._put_under_lease)

    async def _put_under_lease(self, put: Put) -> tuple[None, int]:
        conditions = self._conditions()
        if not conditions:
            return None, await self._metadata.put(*put)
        version, _ = await self._metadata.put_all((put, *conditions))
        self._is_taken = True
        return None, version

    def _conditions(self) -> tuple[Check, ...]:
        return () if self.lease is None or self._is_taken else (self.lease(),)

    @property
    def _key(self) -> str:
        return managed_ledger_key(self._name)

    def _custom(self, component: bytes) -> dict[str, bytes]:
        return {
            "application": b"pulsar",
            "component": component,
            "pulsar/managed-ledger": self._name.encode(),
        }


def _without(ledger_ids: tuple[int, ...], *gone: int) -> tuple[int, ...]:
    return tuple(ledger_id for ledger_id in ledger_ids if ledger_id not in gone)
