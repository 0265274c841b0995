"""Documents: values of one kind, all in memory, each stored as a whole under the version that it was read in.

Several brokers may write one store. A write compares the version; a broker whose value is older reads the newer one, and
makes its change of that. So no change is lost, and none that another broker took back comes again.

After `open` the documents of a shared store follow it: each document and each list of their names has a watch, and what a
watch tells of is read again. Watches tell after each interruption of the session too, so that everything is read again then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put, Stop, Versioned, Write
from foundation.model.errors import BadVersion, BrokerError, MetadataError

log = logging.getLogger(__name__)

T = TypeVar("T")

Beside = Callable[[], Sequence[Write]]
"""Returns what is written together with a document, or the conditions of that. May raise to end the change."""

READS_AT_ONCE: Final = 100
"""Documents of a shared store that are read at the same time."""
_RETRY_S: Final = 1.0
"""Seconds after a failed read of changes until the next one."""


class Documents(Generic[T]):
    """Documents by name; the caller makes one change of a name at a time, and does not cancel it."""

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        decode: Callable[[bytes], T],
        encode: Callable[[T, T | None], bytes],
        *,
        levels: int = 1,
        quoted: bool = False,
        told: Callable[[str, T | None], Awaitable[None]] | None = None,
    ) -> None:
        """`encode` gets a document and the one before it, and may refuse it; `decode` raises ValueError for other bytes.

        A name is the part of the path after `root`: of two parts with two `levels`, empty with none. `quoted`: names have
        any characters. `told` gets the name of a document that another process has changed, and its former value.
        """
        self.values: dict[str, T] = {}
        """The documents that the store had at the last read or write of each name. Only for reading."""
        self._store = store
        self._root = root
        self._decode = decode
        self._encode = encode
        self._levels = levels
        self._quoted = quoted
        self._told = told
        self._versions: dict[str, int] = {}
        # A read beside a write of the same name could bring back what the write has replaced.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reading = asyncio.Lock()
        self._lists: dict[str, set[str]] = {}
        """The last parts of paths below each parent, as listed last; of a shared store."""
        self._stops: dict[str, Stop] = {}
        """Ends of the watches, by path and, for a list, the path with a slash."""
        self._lists_due: dict[str, None] = {}
        self._due: dict[str, None] = {}
        """Sets, in the order of what came."""
        self._untold: dict[str, T | None] = {}
        self._follower: asyncio.Task[None] | None = None
        self._is_open = False
        self._closed = False

    async def open(self) -> None:
        """Reads all documents; those of a shared store follow it from now on. Raises MetadataError."""
        self._mark_all()
        await self._read_due()
        self._is_open = True

    async def read_again(self) -> None:
        """Returns when `values` have each change that was stored before this call. Raises MetadataError."""
        await self._store.sync()
        self._mark_all()
        await self._read_due()

    async def close(self) -> None:
        """Follows the store no longer."""
        self._closed = True
        for stop in self._stops.values():
            stop()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def read(self, name: str) -> T | None:
        """Takes over what is stored under the name, and returns it; None if nothing is. Raises MetadataError."""
        async with self._locked(name):
            return await self._read(name)

    def is_stored(self, name: str) -> bool:
        """Returns True for a name with a value, also for one that `decode` refused, which is absent from `values`."""
        return name in self._versions

    async def change(
        self, name: str, changed: Callable[[T | None], T | None], beside: Beside = tuple
    ) -> None:
        """Stores what `changed` makes of the newest document, in one write with `beside`; None stands for no document.

        `beside` is asked at each write, because a lease may end before the next one.
        `changed` may be called again, with a document of another broker, and may raise to end the change. Raises
        MetadataError; BadVersion only when `beside` is refused.
        """
        async with self._locked(name):
            while True:
                before = self.values.get(name)
                value = changed(before)
                try:
                    await self._write(name, value, before, beside())
                except BadVersion:
                    known = self._versions.get(name)
                    await self._read(name)
                    if self._versions.get(name) == known:
                        raise
                else:
                    return

    async def _write(self, name: str, value: T | None, before: T | None, beside: Sequence[Write]) -> None:
        key, version = self._key(name), self._versions.get(name, ABSENT)
        # The store first: memory must not show a change that was not stored.
        if value is not None:
            data = self._encode(value, before)
            if beside:
                self._versions[name] = (await self._store.put_all((Put(key, data, version), *beside)))[0]
            else:
                self._versions[name] = await self._store.put(key, data, version)
            self.values[name] = value
            if version == ABSENT and self._is_open and self._store.is_shared:
                # Watched from now on: another process may remove it before a list has shown it.
                self._value_changed(name)
        elif version != ABSENT:
            await self._store.delete(key, version)
            self.values.pop(name, None)
            self._versions.pop(name, None)

    async def _read(self, name: str) -> T | None:
        found = await self._store.get(self._key(name))
        before, value = self.values.pop(name, None), self._decoded(name, found)
        if value is not None:
            self.values[name] = value
        if found is None:
            self._versions.pop(name, None)
        else:
            self._versions[name] = found.version
        # By the values: a key that was deleted and made anew may have the version of before.
        if value != before and self._is_open and self._told is not None:
            self._untold.setdefault(name, before)
            self._wake()
        return value

    def _decoded(self, name: str, found: Versioned | None) -> T | None:
        try:
            return None if found is None else self._decode(found.value)
        except ValueError as error:
            if not self._is_open:
                raise
            log.error("! %s cannot be read and counts as missing: %s", self._key(name), error)
            return None

    # Following the store

    def _mark_all(self) -> None:
        if self._levels:
            self._lists_due |= dict.fromkeys((self._root, *self._lists))
        else:
            self._due[""] = None
        self._due |= dict.fromkeys(self._versions)

    def _list_changed(self, parent: str) -> None:
        self._lists_due[parent] = None
        self._wake()

    def _value_changed(self, name: str) -> None:
        self._due[name] = None
        self._wake()

    def _wake(self) -> None:
        if self._follower is None and not self._closed:
            self._follower = asyncio.create_task(self._follow(), name=f"changes of {self._root}")

    async def _follow(self) -> None:
        try:
            while self._lists_due or self._due or self._untold:
                failed = False
                try:
                    await self._read_due()
                except MetadataError as error:
                    log.warning("! changes of %s cannot be read, asking again: %s", self._root, error)
                    failed = True
                await self._tell()
                if failed:
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._follower = None

    async def _tell(self) -> None:
        while self._untold and self._told is not None:
            name, before = self._untold.popitem()
            try:
                await self._told(name, before)
            except BrokerError as error:
                log.warning("! %s was changed by another process: %s", self._key(name), error)

    async def _read_due(self) -> None:
        """Reads everything that is due. Raises MetadataError; what was not read stays due."""
        async with self._reading:
            while self._lists_due:
                parent, _ = self._lists_due.popitem()
                try:
                    await self._list(parent)
                except BaseException:
                    self._lists_due[parent] = None
                    raise
            while self._due:
                names = [
                    self._due.popitem()[0]
                    for _ in range(min(len(self._due), READS_AT_ONCE if self._store.is_shared else 1))
                ]
                try:
                    await _all_of([self._refresh(name) for name in names])
                except BaseException:
                    self._due |= dict.fromkeys(names)
                    raise

    async def _list(self, parent: str) -> None:
        if self._store.is_shared and f"{parent}/" not in self._stops:
            self._stops[f"{parent}/"] = await self._store.watch_children(
                parent, partial(self._list_changed, parent)
            )
        found = set(await self._store.children(parent))
        known = self._lists.get(parent, set())
        if self._store.is_shared:
            self._lists[parent] = found
        changed = [f"{parent}/{part}" for part in sorted(found ^ known)]
        if parent.count("/") - self._root.count("/") + 1 < self._levels:
            self._lists_due |= dict.fromkeys(changed)
        else:
            self._due |= dict.fromkeys(map(self._name, changed))
        above, _, part = parent.rpartition("/")
        if not found and part not in self._lists.get(above, (part,)):
            # The list above brings it back.
            self._unwatch(f"{parent}/")
            del self._lists[parent]

    async def _refresh(self, name: str) -> None:
        key = self._key(name)
        if self._store.is_shared and key not in self._stops:
            self._stops[key] = await self._store.watch(key, partial(self._value_changed, name))
        if await self.read(name) is None and self._levels:
            parent, _, part = key.rpartition("/")
            if part not in self._lists.get(parent, ()):
                self._unwatch(key)

    def _unwatch(self, key: str) -> None:
        if (stop := self._stops.pop(key, None)) is not None:
            stop()

    def _locked(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _key(self, name: str) -> str:
        if not self._levels:
            return self._root
        return f"{self._root}/{quote(name, safe='') if self._quoted else name}"

    def _name(self, key: str) -> str:
        name = key[len(self._root) + 1 :]
        return unquote(name) if self._quoted else name


async def _all_of(reads: Sequence[Awaitable[None]]) -> None:
    """Waits for all reads. Raises the first error, after the last has ended."""
    if len(reads) == 1:
        await reads[0]
        return
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
