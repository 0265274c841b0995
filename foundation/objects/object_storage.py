"""ObjectStorage: the small interface that files and S3 share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol


class ObjectStorageError(Exception):
    """The storage could not be reached, or refused the request. The text names the object."""


class NoSuchObject(ObjectStorageError):
    """The storage has no object of this name."""


class StoredObject(NamedTuple):
    """An object as a list shows it."""

    key: str
    """Its name."""
    size_bytes: int
    """Its size."""
    modified_ms: int
    """When it was written, ms since 1970."""


class ObjectStorage(Protocol):
    """Objects by name. Every method raises ObjectStorageError."""

    @property
    def uri(self) -> str:
        """The place of the objects, for people."""
        ...

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        """Writes an object of these bytes in a row, durably: all of it, or none of it when this raises.

        `attributes`: kept beside the bytes where the storage can.
        """
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns so many bytes of an object, fewer at its end. Raises NoSuchObject."""
        ...

    async def get(self, key: str) -> bytes:
        """Returns all bytes of an object. Raises NoSuchObject."""
        ...

    async def delete(self, key: str) -> None:
        """Deletes an object, and what a writer of it that was killed has left; a missing one is fine."""
        ...

    def scan(self) -> AsyncIterator[StoredObject]:
        """Yields all objects, in any order."""
        ...
