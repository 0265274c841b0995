"""OwnedKey: compare-and-set of one key that a single process writes, also when the answer to a write was lost.

A version that does not match means that another process has the key now. The same mismatch follows a write that was
carried out without this process learning of it: its caller was cancelled, or the store failed in between. So the values of
such writes are kept until the next success. A mismatch whose stored value is one of them is our own, and the write is
asked again with the version found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from foundation.model.errors import BadVersion

T = TypeVar("T")


class OwnedKey:
    """The version of a key that this process has written or read last. One write at a time.

    The caller names the key with each write: every topic and every cursor has one, and the text is longer than the rest.
    """

    __slots__ = ("_store", "_unsure", "version")

    def __init__(self, store: MetadataStore, version: int) -> None:
        """`version`: of the value stored now, or ABSENT."""
        self.version = version
        """Version of the last write that was answered, or ABSENT."""
        self._store = store
        # Values of writes since then whose outcome is unknown.
        self._unsure: tuple[bytes, ...] = ()

    async def put(self, key: str, value: bytes) -> None:
        """Writes the value. Raises BadVersion when another process has written the key, MetadataError otherwise."""
        await self.put_with(key, value, self._put_alone)

    async def put_with(self, key: str, value: bytes, write: Callable[[Put], Awaitable[tuple[T, int]]]) -> T:
        """Writes the value by `write`, which stores more in the same transaction and returns the key's new version too.

        Raises as `put`, and what `write` raises.
        """
        while True:
            try:
                result, self.version = await write(Put(key, value, self.version))
            except BadVersion:
                if not await self._is_own(key):
                    raise
            except BaseException:
                # CancelledError too: a store goes on with a write whose caller no longer waits.
                self._unsure += (value,)
                raise
            else:
                self._unsure = ()
                return result

    async def _put_alone(self, put: Put) -> tuple[None, int]:
        return None, await self._store.put(*put)

    async def _is_own(self, key: str) -> bool:
        """Takes over the version of a stored value that came from here. Returns False for any other value."""
        if not self._unsure:
            return False
        found = await self._store.get(key)
        # A second write by another process has a higher version, even of an equal value.
        if (
            found is None
            or found.value not in self._unsure
            or self.version not in (ABSENT, found.version - 1)
        ):
            return False
        self.version = found.version
        self._unsure = ()
        return True
