"""Documents: values of one kind, all in memory, each stored as a whole under the version that it was read in.

Several brokers may write one store. A write compares the version; a broker whose value is older reads the newer one, and
makes its change of that. So no change is lost, and none that another broker took back comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put, Write
from foundation.model.errors import BadVersion

T = TypeVar("T")


class Documents(Generic[T]):
    """Documents by name; the caller makes one change of a name at a time, and does not cancel it."""

    def __init__(
        self,
        store: MetadataStore,
        key: Callable[[str], str],
        decode: Callable[[bytes], T],
        encode: Callable[[T, T | None], bytes],
    ) -> None:
        """`key` gives the path of a name; `encode` gets a document and the one before it, and may refuse it."""
        self.values: dict[str, T] = {}
        """The documents that the store had at the last read or write of each name. Only for reading."""
        self._store = store
        self._key = key
        self._decode = decode
        self._encode = encode
        self._versions: dict[str, int] = {}

    async def read(self, name: str) -> T | None:
        """Takes over what is stored under the name, and returns it; None if nothing is. Raises MetadataError."""
        found = await self._store.get(self._key(name))
        if found is None:
            self.values.pop(name, None)
            self._versions.pop(name, None)
            return None
        value = self.values[name] = self._decode(found.value)
        self._versions[name] = found.version
        return value

    async def change(
        self, name: str, changed: Callable[[T | None], T | None], beside: Sequence[Write] = ()
    ) -> None:
        """Stores what `changed` makes of the newest document, in one write with `beside`; None stands for no document.

        `changed` may be called again, with a document of another broker, and may raise to end the change. Raises
        MetadataError; BadVersion only when `beside` is refused.
        """
        while True:
            before = self.values.get(name)
            value = changed(before)
            try:
                await self._write(name, value, before, beside)
            except BadVersion:
                known = self._versions.get(name)
                await self.read(name)
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
        elif before is not None:
            await self._store.delete(key, version)
            del self.values[name], self._versions[name]
