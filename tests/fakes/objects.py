"""MemoryObjects: object storage in a dict, for tests that wait for nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from foundation.objects.object_storage import NoSuchObject, StoredObject


class MemoryObjects:
    """Objects by name."""

    uri = "memory:"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        self.stored[key] = b"".join([chunk async for chunk in chunks])

    async def get(self, key: str) -> bytes:
        if key not in self.stored:
            raise NoSuchObject(f"{key} does not exist")
        return self.stored[key]

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return (await self.get(key))[start : start + length]

    async def delete(self, key: str) -> None:
        self.stored.pop(key, None)

    async def scan(self) -> AsyncIterator[StoredObject]:
        for key, value in [*self.stored.items()]:
            yield StoredObject(key, len(value), 0)
