"""NewNodes: writes new nodes that come together as one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from foundation.model.errors import BadVersion

TOGETHER_MAX: Final = 100
"""Nodes of a request."""


PutNew = Callable[[str, bytes], Awaitable[int]]
"""Writes a new node and returns its version."""


class NewNodes:
    """New nodes that do not depend on each other.

    ZooKeeper takes 100 nodes in one transaction for little more than the price of one.
    """

    def __init__(self, store: MetadataStore) -> None:
        """`store` gets the nodes."""
        self._store = store
        self._waiting: list[tuple[Put, asyncio.Future[int]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, key: str, value: bytes) -> int:
        """Writes the node with those that come in the same turn of the loop; returns its version.

        Raises BadVersion for a key that exists, and MetadataError.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((Put(key, value, ABSENT), done))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._begin)
        return await done

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), TOGETHER_MAX):
            task = asyncio.ensure_future(self._send(waiting[first : first + TOGETHER_MAX]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, nodes: list[tuple[Put, asyncio.Future[int]]]) -> None:
        # Any error is a result here: a caller must not wait for ever.
        (result,) = await asyncio.gather(
            self._store.put_all([put for put, _ in nodes]), return_exceptions=True
        )
        if isinstance(result, BadVersion):
            # One of them exists, and kept the others from being written.
            alone = [self._store.put(put.key, put.value, ABSENT) for put, _ in nodes]
            outcomes: list[int | BaseException] = [*await asyncio.gather(*alone, return_exceptions=True)]
        else:
            outcomes = [result] * len(nodes) if isinstance(result, BaseException) else [*result]
        for (_, done), outcome in zip(nodes, outcomes, strict=True):
            if done.done():
                continue  # The caller was cancelled.
            if isinstance(outcome, BaseException):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
