"""EventLocks: one broker at a time changes the policies of a namespace's topics.

Each broker opens the topic with the events for a change, which takes it from the broker that had it. Brokers that do so at
once would end each other's changes, again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.shared_locks import SharedLocks
from foundation.model.errors import MetadataError, ServiceNotReady

ROOT: Final = "/loadbalance/magnetar-policy-locks"
"""Below it a lock for each namespace that has policies of topics."""
CHANGE_S: Final = 20.0
"""Seconds for a change, with the wait for the lock: less than brokers wait for each other's answers."""
_NAME_S: Final = 2.0
"""Seconds in which the broker that holds the lock is looked up, for the text of an error."""


class EventLocks:
    """The locks of one broker."""

    def __init__(self, store: MetadataStore, broker: Callable[[], str]) -> None:
        """`broker`: returns the name of this broker."""
        self._locks = SharedLocks(store)
        self._broker = broker
        self.close = self._locks.close
        """Ends the work for the locks."""

    @contextlib.asynccontextmanager
    async def hold(self, namespace: str, *, bounded: bool) -> AsyncIterator[None]:
        """Waits for the lock, and releases it at the end of the block. Raises ServiceNotReady after `CHANGE_S`.

        `bounded`: the block is cancelled at that time too. Raises ServiceNotReady where the metadata store fails, and
        TimeoutError where the block does.
        """
        lock = f"{ROOT}/{namespace}"
        try:
            async with asyncio.timeout(CHANGE_S) as limit, self._locks.hold(lock, self._broker()):
                if not bounded:
                    limit.reschedule(None)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            why = await self._why_late(lock)
            raise ServiceNotReady(
                f"Policies of topics of {namespace} could not be changed within {CHANGE_S:g} s: {why}. Try again"
            ) from None
        except MetadataError as error:
            raise ServiceNotReady(
                f"Policies of topics of {namespace} cannot be read or changed now, try again: {error}"
            ) from error

    async def forget(self, namespace: str) -> None:
        """Removes the lock of a namespace that was deleted."""
        # One that is left costs a node, and nobody needs it.
        with contextlib.suppress(MetadataError):
            await self._locks.forget(f"{ROOT}/{namespace}")

    async def _why_late(self, lock: str) -> str:
        try:
            async with asyncio.timeout(_NAME_S):
                holder = await self._locks.holder(lock)
        except (TimeoutError, MetadataError):
            return "the metadata store does not answer"
        if holder and holder != self._broker():
            return f"broker {holder} has been changing some for long"
        return "there are too many changes, or the storage is slow"
